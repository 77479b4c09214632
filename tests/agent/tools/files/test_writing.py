"""`write_file` and `edit_file` change what was meant, whole or not at all, and nothing outside."""

from __future__ import annotations

import os
import stat

import pytest

from parley.agent.tools import ToolResult
from tests.agent.tools.files.conftest import SECRET, Files, names_in


async def write(files: Files, path: str, content: str) -> ToolResult:
    return await files("write_file", path=path, content=content)


async def edit(files: Files, path: str, old: str, new: str, **more: bool) -> ToolResult:
    return await files("edit_file", path=path, old=old, new=new, **more)


async def test_a_file_is_written_with_its_folders(files: Files) -> None:
    assert await write(files, "a/b/new.txt", "é\n") == ToolResult("Wrote a/b/new.txt (3 bytes).")
    assert (files.workspace / "a/b/new.txt").read_text() == "é\n"
    assert await write(files, "a/b/new.txt", " x ") == ToolResult("Replaced a/b/new.txt (3 bytes).")
    assert (files.workspace / "a/b/new.txt").read_text() == " x "
    assert names_in(files.workspace / "a/b") == ["new.txt"]


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "{outside}/secret.txt",
        "link.txt",
        "folder/secret.txt",
        "folder/new",
        "fresh",
    ],
)
async def test_nothing_outside_is_written(files: Files, path: str) -> None:
    outside = files.workspace.parent
    (files.workspace / "link.txt").symlink_to(outside / "secret.txt")
    (files.workspace / "fresh").symlink_to("../new")
    (files.workspace / "folder").symlink_to(outside)
    where = path.format(outside=outside)
    for result in (await write(files, where, "x"), await edit(files, where, SECRET, "x")):
        assert not result.ok
        assert "outside the workspace" in result.text
    assert names_in(outside) == ["secret.txt", "workspace"]
    assert (outside / "secret.txt").read_text() == SECRET


async def test_a_file_linked_from_outside_keeps_its_content_there(files: Files) -> None:
    os.link(files.workspace.parent / "secret.txt", files.workspace / "same.txt")
    await write(files, "same.txt", "x")
    await edit(files, "same.txt", "x", "y")
    assert (files.workspace.parent / "secret.txt").read_text() == SECRET


async def test_a_link_inside_stays_a_link(files: Files) -> None:
    (files.workspace / "real.txt").write_text("one")
    (files.workspace / "link.txt").symlink_to("real.txt")
    assert await write(files, "link.txt", "two") == ToolResult("Replaced real.txt (3 bytes).")
    assert (files.workspace / "link.txt").is_symlink()
    assert (files.workspace / "real.txt").read_text() == "two"


async def test_what_replaces_a_file_has_its_rights(files: Files) -> None:
    script = files.workspace / "run.sh"
    script.write_text("one")
    script.chmod(0o750)
    await write(files, "run.sh", "two")
    await edit(files, "run.sh", "two", "three")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert script.read_text() == "three"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_a_file_of_somebody_else_can_be_replaced(files: Files) -> None:
    (files.workspace / "theirs.txt").write_text("one")
    os.chown(files.workspace / "theirs.txt", 12345, 12345)
    assert (await write(files, "theirs.txt", "two")).ok
    assert (files.workspace / "theirs.txt").read_text() == "two"


async def test_what_is_no_file_is_not_written(files: Files) -> None:
    os.mkfifo(files.workspace / "pipe")
    (files.workspace / "folder").mkdir()
    (files.workspace / "notes.txt").touch()
    for path in ("pipe", "folder", ".", "new/", "notes.txt/below", "a\0b"):
        assert not (await write(files, path, "x")).ok
    assert names_in(files.workspace) == ["folder", "notes.txt", "pipe"]
    assert stat.S_ISFIFO((files.workspace / "pipe").stat().st_mode)


async def test_too_much_at_once_is_refused(files: Files) -> None:
    assert (await write(files, "big.txt", "é" * 2_500_000)).ok
    result = await write(files, "bigger.txt", "é" * 2_500_001)
    assert result == ToolResult(
        "The content is longer than 5000000 bytes: write it in parts.", ok=False
    )
    assert not (await write(files, "biggest.txt", "\1" * 10_000_000)).ok
    assert names_in(files.workspace) == ["big.txt"]


async def test_text_is_replaced_where_it_is(files: Files) -> None:
    (files.workspace / "a.py").write_bytes(b"one\ntwo\nthree\xe9\n")
    assert await edit(files, "a.py", "two\nth", "2\nth") == ToolResult("Edited a.py (line 2).")
    assert (files.workspace / "a.py").read_bytes() == b"one\n2\nthree\xe9\n"


async def test_text_that_is_there_more_than_once_is_not_guessed(files: Files) -> None:
    (files.workspace / "a.py").write_text("x = 1\ny = 2\nx = 1\n")
    result = await edit(files, "a.py", "x = 1", "x = 3")
    assert not result.ok
    assert "2 times (lines 1, 3)" in result.text
    assert (files.workspace / "a.py").read_text() == "x = 1\ny = 2\nx = 1\n"
    assert await edit(files, "a.py", "x = 1", "x = 3", all=True) == ToolResult(
        "Edited a.py (lines 1, 3)."
    )
    assert (files.workspace / "a.py").read_text() == "x = 3\ny = 2\nx = 3\n"


async def test_text_that_is_not_there_is_said(files: Files) -> None:
    (files.workspace / "a.py").write_text("def f():\n    return 1\n")
    gone = await edit(files, "a.py", "class", "x")
    assert gone == ToolResult("`old` is not in a.py; read the file again.", ok=False)
    near = await edit(files, "a.py", "def f():\n  return 1", "x")
    assert not near.ok
    assert "its first line is there (line 1)" in near.text
    for old, new in (("", "x"), ("def", "def")):
        assert not (await edit(files, "a.py", old, new)).ok
    assert not (await edit(files, "b.py", "x", "y")).ok


async def test_lines_that_end_as_on_windows_are_met(files: Files) -> None:
    (files.workspace / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    assert (await edit(files, "a.txt", "one\ntwo", "1\n2")).ok
    assert (files.workspace / "a.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"


async def test_an_edit_that_swells_a_file_is_refused(files: Files) -> None:
    (files.workspace / "a.txt").write_text("x" * 10_000)
    result = await edit(files, "a.txt", "x", "y" * 10_000, all=True)
    assert not result.ok
    assert (files.workspace / "a.txt").read_text() == "x" * 10_000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_folder_that_is_not_writable_is_said(files: Files) -> None:
    (files.workspace / "locked").mkdir(mode=0o500)
    result = await write(files, "locked/a.txt", "x")
    assert result == ToolResult("locked/a.txt: Permission denied.", ok=False)
