"""Long results and scratch files are of one conversation: nobody else's turn reaches them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.agent.tools import TOOLS, Tool, ToolContext
from parley.agent.tools.arguments import Arguments
from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.house import House
from tests.gateway.room import Room, in_thread
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until

_SECRET = "the diagnosis of Ann"
_MODES = [pytest.param("required", marks=needs_bubblewrap), "off"]


class _Nothing(Arguments):
    pass


def _long_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell_all(arguments: _Nothing, context: ToolContext) -> str:
        return "a line of no meaning\n" * 2000 + _SECRET

    made = Tool("tell_all", "Tell all.", _Nothing, tell_all)
    monkeypatch.setitem(TOOLS, "tell_all", made)


async def _open(house: House, mode: str = "required", **agent: Any) -> Room:
    house.desk_type = Room
    tools = ["tell_all", "read_file", "write_file", "search_files", "terminal", "delegate_task"]
    desk = await house.open(
        terminal={"sandbox": mode},
        agent={"tools": tools, "safety": {"file-delete": False}, **agent},
    )
    assert isinstance(desk, Room)
    return desk


async def _asked(house: House, stage: Stage, desk: Room, who: str, *made: Any, **at: Any) -> str:
    """One turn of somebody's in which these calls are made; all that the model was told of them."""
    stage.then(Reply(tool_calls=made), Reply("done"))
    assert await desk.hear(who, "go", **at) == "done"
    told = [each for each in house.asked() if each["role"] == "tool"]
    return "\n".join(str(each["content"]) for each in told[-len(made) :])


def _path_in(text: str) -> str:
    return text.split("read_file path=")[1].split(",", maxsplit=1)[0]


@pytest.mark.parametrize("mode", _MODES)
async def test_nobody_reads_the_long_results_of_another_by_file_tools(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    _long_tool(monkeypatch)
    desk = await _open(house, mode)
    path = _path_in(await _asked(house, stage, desk, "ann", ("tell_all", {})))
    reading = ("read_file", {"path": path, "first_line": 1990})
    assert _SECRET in await _asked(house, stage, desk, "ann", reading)
    # A link of the workspace leads each to their own.
    (house.profile.workspace / "door").symlink_to(".parley/results")
    (house.profile.workspace / "home").symlink_to(house.profile.home)
    name = path.rpartition("/")[2]
    looking = (
        ("read_file", {"path": ".parley/results"}),
        ("read_file", {"path": "home/session-files"}),
        ("search_files", {"pattern": "no meaning", "path": ".parley"}),
        ("search_files", {"pattern": "no meaning", "path": "."}),
        ("search_files", {"pattern": "", "path": ".parley", "names_only": True}),
    )
    assert name not in await _asked(house, stage, desk, "ben", *looking)
    paths = (path, f"door/{name}", *map(str, _kept(house)))
    tries = (("read_file", {"path": each, "first_line": 1990}) for each in paths)
    assert _SECRET not in await _asked(house, stage, desk, "ben", *tries)
    assert _SECRET in await _asked(house, stage, desk, "ann", reading)


@needs_bubblewrap
async def test_a_command_sees_the_files_of_its_own_conversation_alone(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _long_tool(monkeypatch)
    desk = await _open(house)
    await _asked(house, stage, desk, "ann", ("tell_all", {}))
    look = (
        f"grep -rl '{_SECRET}' . .. ~ /tmp 2>/dev/null; ls -a .parley .parley/results; "
        f"ls {house.profile.home}/session-files; rm -rf .parley; ln -s .. .parley"
    )
    theirs = await _asked(house, stage, desk, "ben", ("terminal", {"command": look}))
    assert "results/" not in theirs
    search = f"grep -rl '{_SECRET}' .parley; echo mine > .parley/scratch"
    own = await _asked(house, stage, desk, "ann", ("terminal", {"command": search}))
    assert ".parley/results/" in own
    scratch = ("read_file", {"path": ".parley/scratch"})
    assert await _asked(house, stage, desk, "ann", scratch) == "mine"
    assert "mine" not in await _asked(house, stage, desk, "ben", scratch)


@pytest.mark.parametrize("mode", _MODES)
async def test_what_is_written_under_it_is_scratch_of_the_conversation(
    house: House, stage: Stage, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _long_tool(monkeypatch)
    desk = await _open(house, mode)
    note = {"path": ".parley/notes/a.txt", "content": _SECRET}
    await _asked(house, stage, desk, "ann", ("write_file", note))
    reading = ("read_file", {"path": ".parley/notes/a.txt"})
    assert await _asked(house, stage, desk, "ann", reading) == _SECRET
    assert _SECRET not in await _asked(house, stage, desk, "ben", reading)
    assert not (house.profile.workspace / ".parley" / "notes").exists()


async def test_a_conversation_that_several_share_shares_its_files(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _long_tool(monkeypatch)
    desk = await _open(house, "off")
    path = _path_in(await _asked(house, stage, desk, "ann", ("tell_all", {}), at=in_thread))
    reading = ("read_file", {"path": path, "first_line": 1990})
    assert _SECRET in await _asked(house, stage, desk, "ben", reading, at=in_thread)
    assert _SECRET not in await _asked(house, stage, desk, "ben", reading)
    assert _SECRET not in await _asked(house, stage, desk, "ann", reading)


async def test_a_new_session_begins_without_the_files_of_the_last(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _long_tool(monkeypatch)
    desk = await _open(house, "off")
    path = _path_in(await _asked(house, stage, desk, "ann", ("tell_all", {})))
    reading = ("read_file", {"path": path, "first_line": 1990})
    await desk.hear("ann", "!new")
    assert _SECRET not in await _asked(house, stage, desk, "ann", reading)


async def test_a_delegated_task_works_with_the_files_of_who_delegated_it(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _long_tool(monkeypatch)
    desk = await _open(house, "off", taint="off")
    path = _path_in(await _asked(house, stage, desk, "ann", ("tell_all", {})))
    stage.then(
        Reply(tool_calls=(("delegate_task", {"goal": "look"}),)),
        Reply(tool_calls=(("read_file", {"path": path, "first_line": 1990}),)),
        lambda asked: Reply("found" if _SECRET in str(asked["messages"][-1]) else "nothing"),
        lambda asked: Reply(str(asked["messages"][-1]["content"])),
    )
    assert "found" in await desk.hear("ann", "go")


async def test_results_that_people_shared_before_are_removed(house: House) -> None:
    old = house.profile.workspace / ".parley" / "results" / "old.txt"
    old.parent.mkdir(parents=True)
    old.write_text(_SECRET)
    (house.profile.workspace / "kept.txt").write_text("kept")
    desk = await _open_plain(house)
    assert await desk.hear("ann", "hello")
    await until(lambda: not old.exists())
    assert (house.profile.workspace / "kept.txt").exists()


async def _open_plain(house: House) -> Room:
    house.desk_type = Room
    desk = await house.open()
    assert isinstance(desk, Room)
    return desk


def _kept(house: House) -> list[Path]:
    return [path for path in house.profile.home.rglob("*.txt") if _SECRET in path.read_text()]
