"""The hand's children: what they know, how long they live, and that they come back."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from parley.agent.sandbox import Sandbox, SandboxMode
from parley.agent.tools import ToolError, ToolResult
from parley.agent.tools.files import FileHand
from parley.protocol import ParleyError
from tests.agent.tools.files.conftest import SECRET, Files, make_hand
from tests.waiting import until, until_now


def processes_of(workspace: Path) -> list[int]:
    """All that were started for a workspace, within a sandbox too."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if (
                folder.name.isdigit()
                and str(workspace).encode() in (folder / "cmdline").read_bytes()
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


@pytest.fixture(autouse=True)
def notes(workspace: Path) -> None:
    (workspace / "notes.txt").write_text("one")


async def test_a_child_is_started_when_it_is_needed_and_kept(files: Files) -> None:
    assert files.hand.pids == []
    assert (await files.read("notes.txt")).ok
    pids = files.hand.pids
    assert len(pids) == 1
    assert (await files.read("notes.txt")).ok
    assert files.hand.pids == pids


async def test_nothing_is_left_after_the_end(files: Files) -> None:
    await asyncio.gather(*(files.read("notes.txt") for _ in range(8)))
    assert processes_of(files.workspace)
    await files.hand.close()
    await until(lambda: not processes_of(files.workspace))
    assert await files.read("notes.txt") == ToolResult("The file tools are closed.", ok=False)


async def test_calls_run_side_by_side_on_few_children(files: Files) -> None:
    results = await asyncio.gather(*(files.read("notes.txt") for _ in range(30)))
    assert {result.text for result in results} == {"one"}
    assert 1 <= len(files.hand.pids) <= 3


async def test_a_killed_child_comes_back(files: Files) -> None:
    assert (await files.read("notes.txt")).ok
    (pid,) = files.hand.pids
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not files.hand.pids)
    assert await files.read("notes.txt") == ToolResult("one")
    assert files.hand.pids not in ([], [pid])


async def test_an_edit_is_not_begun_twice_when_its_child_dies(files: Files) -> None:
    """A child that was stopped has seen the request, for all we know, when it is killed."""
    assert (await files.read("notes.txt")).ok
    (pid,) = files.hand.pids
    os.kill(pid, signal.SIGSTOP)
    for other in processes_of(files.workspace):
        os.kill(other, signal.SIGSTOP)
    call = asyncio.create_task(files("edit_file", path="notes.txt", old="one", new="two"))
    await asyncio.wait([call], timeout=0.2)
    os.kill(pid, signal.SIGKILL)
    result = await call
    assert not result.ok
    assert "read the file" in result.text
    assert (files.workspace / "notes.txt").read_text() == "one"


async def test_a_child_that_hangs_is_killed_and_the_next_call_works(
    workspace: Path, mode: SandboxMode
) -> None:
    hand = make_hand(workspace, mode, seconds=1.0)
    files = Files(workspace, hand, sandboxed=mode == "auto")
    try:
        assert (await files.read("notes.txt")).ok
        for pid in processes_of(workspace):
            os.kill(pid, signal.SIGSTOP)
        hung = await files.read("notes.txt")
        assert not hung.ok
        assert "took longer than 1 s" in hung.text
        assert await files.read("notes.txt") == ToolResult("one")
    finally:
        await hand.close()
    await until(lambda: not processes_of(workspace))


async def test_a_call_that_is_cancelled_leaves_no_answer_for_the_next(files: Files) -> None:
    (files.workspace / "other.txt").write_text("two")
    assert (await files.read("notes.txt")).ok
    for _ in range(20):
        call = asyncio.create_task(files.read("notes.txt"))
        await asyncio.sleep(0.0005)
        call.cancel()
        assert await files.read("other.txt") == ToolResult("two")


async def test_a_child_with_nothing_to_do_ends_by_itself(
    workspace: Path, mode: SandboxMode
) -> None:
    hand = make_hand(workspace, mode, idle_seconds=0.2)
    files = Files(workspace, hand, sandboxed=mode == "auto")
    try:
        assert (await files.read("notes.txt")).ok
        await until(lambda: not processes_of(workspace))
        assert (await files("edit_file", path="notes.txt", old="one", new="two")).ok
        assert await files.read("notes.txt") == ToolResult("two")
    finally:
        await hand.close()


async def test_a_workspace_that_is_gone_is_said_and_a_new_one_is_seen(files: Files) -> None:
    assert (await files.read("notes.txt")).ok
    shutil.rmtree(files.workspace)
    gone = await files.read("notes.txt")
    assert not gone.ok
    assert "is not there" in gone.text
    files.workspace.mkdir()
    (files.workspace / "notes.txt").write_text("new")
    assert await files.read("notes.txt") == ToolResult("new")


async def test_a_workspace_that_is_moved_away_is_not_touched(files: Files) -> None:
    assert (await files.read("notes.txt")).ok
    files.workspace.rename(files.workspace.parent / "moved")
    files.workspace.mkdir()
    assert (await files("write_file", path="a.txt", content="x")).ok
    assert not (files.workspace.parent / "moved" / "a.txt").exists()


async def test_a_child_knows_no_secret(files: Files) -> None:
    assert (await files.read("notes.txt")).ok
    for pid in processes_of(files.workspace):
        assert SECRET.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


async def test_a_sandboxed_child_sees_the_workspace_alone(files: Files) -> None:
    if not files.sandboxed:
        pytest.skip("there is no sandbox to look into")
    assert (await files.read("notes.txt")).ok
    roots = [Path(f"/proc/{pid}/root") for pid in processes_of(files.workspace)]
    beside = str(files.workspace.parent / "secret.txt").lstrip("/")
    inner = [root for root in roots if not (root / beside).exists()]
    assert inner
    for root in inner:
        assert (root / str(files.workspace).lstrip("/") / "notes.txt").exists()


async def test_without_the_sandbox_that_is_required_nothing_is_touched(workspace: Path) -> None:
    def sandbox() -> Sandbox:
        raise ParleyError("A sandbox is required: install bubblewrap.")

    hand = FileHand(workspace, sandbox=sandbox, environment={})
    with pytest.raises(ToolError, match="install bubblewrap"):
        await hand.call("read", path="notes.txt", first_line=1, lines=1, column=1)
    await hand.close()


async def test_a_sandbox_that_does_not_start_is_said(workspace: Path) -> None:
    for program in ("/bin/false", "/nowhere/bwrap"):
        hand = FileHand(workspace, sandbox=partial(Sandbox, "bubblewrap", program), environment={})
        with pytest.raises(ToolError, match=r"The file tools .*\."):
            await hand.call("read", path="notes.txt", first_line=1, lines=1, column=1)
        await hand.close()


PARENT = """
    import asyncio, os, sys
    from pathlib import Path
    from parley.agent.sandbox import find_sandbox
    from parley.agent.tools.files import FileHand

    async def main():
        hand = FileHand(
            Path(sys.argv[1]),
            sandbox=lambda: find_sandbox(sys.argv[2]),
            environment={"PATH": os.environ["PATH"]},
            seconds=4.0,
        )
        read = {"path": "notes.txt", "first_line": 1, "lines": 1, "column": 1}
        print(await hand.call("read", **read), flush=True)
        if sys.argv[3] == "hanging":
            how = {"glob": None, "plain": False, "names_only": False}
            await hand.call("search", path=".", pattern=r"^(a+)+\\1$", **how)
        await asyncio.sleep(60)

    asyncio.run(main())
"""


@pytest.mark.parametrize("doing", ["nothing", "hanging"])
def test_no_child_outlives_a_parent_that_was_killed(
    workspace: Path, mode: SandboxMode, doing: str
) -> None:
    (workspace / "a.txt").write_text("a" * 60 + "!")
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), str(workspace), mode, doing],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "one\n"
        children = [pid for pid in processes_of(workspace) if pid != parent.pid]
        assert children
        if doing == "hanging":
            until_now(lambda: any(_busy(pid) for pid in children))
    finally:
        parent.kill()
        parent.communicate()
    try:
        until_now(lambda: not processes_of(workspace))
    finally:
        for pid in processes_of(workspace):
            os.kill(pid, signal.SIGKILL)


def _busy(pid: int) -> bool:
    """Whether it used a good part of a second: it is in the search by now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) > 0.3 * os.sysconf("SC_CLK_TCK")
