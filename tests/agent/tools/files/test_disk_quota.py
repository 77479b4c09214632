"""What file tools, long results and sent files add stays within the disk quota."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from parley.agent.disk_quota import DiskLimits, DiskQuota
from parley.agent.sandbox import SandboxMode
from parley.agent.tools import ToolResult
from parley.agent.tools.files.sending import send_file_tool
from parley.agent.tools.results import set_aside
from parley.protocol import ToolCall
from tests.agent.builders import context
from tests.agent.tools.files.conftest import Files, make_hand, names_in

_MB = 1024 * 1024
_WORKSPACE, _PERSON, _FILES = 16 * _MB, 8 * _MB, 100


@dataclass(frozen=True, slots=True)
class Room:
    """A workspace with little room, for one person with two conversations."""

    files: Files
    quota: DiskQuota
    home: Path

    @property
    def own(self) -> Path:
        assert self.files.own is not None
        return self.files.own

    def fill(self, path: Path, size: int) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
        return path

    async def write(self, path: str, size: int) -> ToolResult:
        return await self.files("write_file", path=path, content="x" * size)


@pytest.fixture
async def room(tmp_path: Path, workspace: Path, mode: SandboxMode) -> AsyncIterator[Room]:
    sessions = tmp_path / "session-files"
    quota = DiskQuota(workspace, sessions, DiskLimits(_WORKSPACE, _PERSON, _FILES))
    hand = make_hand(workspace, mode, private=sessions, quota=quota)
    own = sessions / "ann" / "one"
    yield Room(Files(workspace, hand, sandboxed=mode == "auto", own=own), quota, tmp_path)
    await hand.close()


async def test_a_full_workspace_takes_no_more_until_something_is_removed(room: Room) -> None:
    much = room.fill(room.files.workspace / "much", _WORKSPACE - _MB)
    result = await room.write("new/folder/more.txt", 2 * _MB)
    assert not result.ok
    assert "terminal.workspace_mb allows 16" in result.text
    assert "Remove files first." in result.text
    assert names_in(room.files.workspace) == ["much"]
    assert (await room.write("little.txt", 1000)).ok
    much.unlink()
    assert (await room.write("new/folder/more.txt", 2 * _MB)).ok


async def test_many_writes_fill_it_and_no_more(room: Room) -> None:
    """Each is small; together they are too much."""
    results = [await room.write(f"part-{number}", 3 * _MB) for number in range(8)]
    assert [result.ok for result in results] == [True] * 5 + [False] * 3


async def test_several_writes_at_once_do_not_pass_it_by_much(room: Room) -> None:
    room.fill(room.files.workspace / "much", _WORKSPACE - 4 * _MB)
    await asyncio.gather(*(room.write(f"part-{number}", 3 * _MB) for number in range(9)))
    assert 1 <= len(names_in(room.files.workspace)) - 1 <= 3, "three children write at a time"


async def test_a_file_may_be_replaced_by_one_that_is_not_larger(room: Room) -> None:
    room.fill(room.files.workspace / "much", _WORKSPACE + 2 * _MB)
    (room.files.workspace / "note.txt").write_text("a" * 9000)
    assert (await room.write("note.txt", 8000)).ok
    assert not (await room.write("note.txt", 80_000)).ok
    edit = {"path": "note.txt", "old": "x" * 8000}
    assert not (await room.files("edit_file", **edit, new="y" * 80_000)).ok
    assert (await room.files("edit_file", **edit, new="y")).ok
    assert (room.files.workspace / "note.txt").read_text() == "y"


async def test_an_edit_that_makes_a_file_too_large_is_refused(room: Room) -> None:
    room.fill(room.files.workspace / "much", _WORKSPACE - _MB)
    text = "ab" * 1000
    (room.files.workspace / "note.txt").write_text(text)
    result = await room.files("edit_file", path="note.txt", old="a", new="c" * 2000, all=True)
    assert not result.ok
    assert "terminal.workspace_mb allows 16" in result.text
    assert (room.files.workspace / "note.txt").read_text() == text


async def test_files_of_a_conversation_count_for_its_person_alone(room: Room) -> None:
    room.fill(room.own.parent / "two" / "much", _PERSON - _MB)
    result = await room.write(".parley/more.txt", 2 * _MB)
    assert not result.ok
    assert "terminal.person_mb allows 8" in result.text
    assert (await room.write("shared.txt", 2 * _MB)).ok
    bob = replace(room.files, own=room.own.parent.parent / "bob" / "one")
    assert (await replace(room, files=bob).write(".parley/more.txt", 2 * _MB)).ok


async def test_the_number_of_files_is_limited(room: Room) -> None:
    for number in range(_FILES - 3):
        (room.files.workspace / f"f{number}").touch()
    assert (await room.write("one.txt", 10)).ok
    result = await room.write("another.txt", 10)
    assert not result.ok
    assert f"terminal.workspace_files allows {_FILES}" in result.text
    assert (await room.write("one.txt", 20)).ok, "a file that is there is no other one"


async def test_a_long_result_is_not_kept_where_there_is_no_room(room: Room) -> None:
    here = replace(context(room.files.workspace), call="turn 1", private=room.own, disk=room.quota)
    text = "a line\n" * 1000
    assert "read_file path=.parley/results/" in set_aside(text, 1000, here)
    much = room.fill(room.own / "much", _PERSON)
    full = set_aside(text, 1000, replace(here, call="turn 2"))
    assert full.startswith("a line\n")
    assert len(full) <= 1000
    assert "more characters were left out" in full
    assert "terminal.person_mb allows 8" in full
    assert len(names_in(room.own / "results")) == 1
    much.unlink()
    assert "read_file path=" in set_aside(text, 1000, replace(here, call="turn 2"))


async def test_copies_of_sent_files_count_too(room: Room) -> None:
    kept = room.home / "attachments"
    send = send_file_tool(room.files.hand, kept)
    for number in range(2):
        room.fill(room.files.workspace / f"f{number}", 2 * _MB)

    async def sent(number: int) -> ToolResult:
        call = ToolCall("c1", "send_file", {"path": f"f{number}"})
        return await send.run(call, context(room.files.workspace))

    assert (await sent(0)).ok
    picture = room.fill(kept / "picture of a person", 9 * _MB)
    result = await sent(1)
    assert not result.ok
    assert "terminal.workspace_mb allows 16" in result.text
    assert len(names_in(kept)) == 2
    picture.unlink()
    assert (await sent(1)).ok


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a disk that others leave alone")
def test_a_count_is_used_again_while_there_is_room() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        quota = DiskQuota(Path(folder), None, DiskLimits(1000 * _MB, 1000 * _MB, 100_000))
        first = quota.look()
        (Path(folder) / "new").write_bytes(os.urandom(8 * _MB))
        second = quota.look()
    assert second.used_in_workspace == first.used_in_workspace, "nothing was counted"
    assert second.used >= first.used + 7 * _MB, "and yet it is known"


def test_where_it_is_tight_files_are_counted_again(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    quota = DiskQuota(tmp_path / "ws", None, DiskLimits(1000 * _MB, 1000 * _MB, 100_000))
    quota.look()
    (tmp_path / "ws" / "new").write_bytes(os.urandom(8 * _MB))
    room = quota.look(needed=990 * _MB)
    assert room.used_in_workspace > 8 * _MB
    assert room.left < 992 * _MB
