"""`read_file` reads what is in the workspace, and nothing else."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from parley.agent.tools import ToolResult
from tests.agent.tools.files.conftest import SECRET, Files


async def test_a_file_is_read(files: Files) -> None:
    (files.workspace / "notes.txt").write_text("one\ntwo\n")
    for path in (
        "notes.txt",
        str(files.workspace / "notes.txt"),
        "./x/../notes.txt",
        "~/notes.txt",
    ):
        assert await files.read(path) == ToolResult("one\ntwo")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "x/../../secret.txt",
        "{outside}/secret.txt",
        "{outside}/workspace/../secret.txt",
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        "/proc/self/environ",
        "/dev/stdin",
        "link.txt",
        "folder/secret.txt",
        "near",
        "proc/environ",
        "../workspace-of-another/notes.txt",
        "..",
        "/",
    ],
)
async def test_what_lies_outside_is_refused(files: Files, path: str) -> None:
    outside = files.workspace.parent
    (files.workspace / "link.txt").symlink_to(outside / "secret.txt")
    (files.workspace / "near").symlink_to("../secret.txt")
    (files.workspace / "proc").symlink_to("/proc/self")
    (files.workspace / "folder").symlink_to(outside, target_is_directory=True)
    (outside / "workspace-of-another").mkdir()
    (outside / "workspace-of-another" / "notes.txt").write_text(SECRET)
    result = await files.read(path.format(outside=outside))
    assert not result.ok
    assert "outside the workspace" in result.text
    assert SECRET not in result.text


async def test_a_link_that_stays_inside_is_followed(files: Files) -> None:
    (files.workspace / "sub").mkdir()
    (files.workspace / "notes.txt").write_text("one")
    (files.workspace / "link.txt").symlink_to("notes.txt")
    (files.workspace / "sub" / "up").symlink_to("../link.txt")
    (files.workspace / "far").symlink_to(files.workspace / "sub")
    for path in ("link.txt", "sub/up", "far/up"):
        assert await files.read(path) == ToolResult("one")


@pytest.mark.parametrize(
    "path", ["a\0b", "\0", "loop", "x" * 5000, "x" * 300, "a/" * 2000, "b/" * 150]
)
async def test_a_path_that_is_none_is_answered(files: Files, path: str) -> None:
    (files.workspace / "loop").symlink_to("pool")
    (files.workspace / "pool").symlink_to("loop")
    result = await files.read(path)
    assert not result.ok
    assert result.text.endswith(".")
    assert len(result.text) < 500


async def test_a_missing_file_is_named(files: Files) -> None:
    result = await files.read("notes.txt")
    assert result == ToolResult("There is no notes.txt in the workspace.", ok=False)
    (files.workspace / "notes.txt").write_text("one")
    below = await files.read("notes.txt/below")
    assert below == ToolResult("notes.txt in notes.txt/below is not a folder.", ok=False)


async def test_a_folder_is_listed(files: Files) -> None:
    (files.workspace / "b.txt").touch()
    (files.workspace / "a").mkdir()
    assert await files.read(".") == ToolResult("a/\nb.txt")
    assert await files.read("a") == ToolResult("(the folder is empty)")
    for number in range(100, 800):
        (files.workspace / "a" / f"{number}").touch()
    assert (await files.read("a", lines=2)).text == "100\n101\n… (698 more)"
    assert (await files.read("a", first_line=699)).text == "798\n799"


async def test_a_name_that_cannot_be_printed_is_listed_all_the_same(files: Files) -> None:
    os.close(os.open(os.fsencode(files.workspace) + b"/caf\xe9\n.txt", os.O_CREAT | os.O_WRONLY))
    result = await files.read(".")
    assert result == ToolResult("caf��.txt")


async def test_what_is_no_file_is_not_waited_for(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(files.workspace / "pipe")
    monkeypatch.chdir(files.workspace)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name in ("pipe", "socket"):
            result = await files.read(name)
            assert result == ToolResult(f"{name} is not an ordinary file.", ok=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
async def test_a_device_is_refused(files: Files) -> None:
    try:
        os.mknod(files.workspace / "zero", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this machine makes no devices")
    assert not (await files.read("zero")).ok


async def test_a_binary_file_is_refused(files: Files) -> None:
    (files.workspace / "image.png").write_bytes(b"\x89PNG\0\0\0")
    result = await files.read("image.png")
    assert result == ToolResult("image.png is not a text file.", ok=False)


async def test_what_is_not_plain_utf_8_is_read_all_the_same(files: Files) -> None:
    (files.workspace / "old.txt").write_bytes(b"caf\xe9")
    assert await files.read("old.txt") == ToolResult("caf�")
    (files.workspace / "windows.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert await files.read("windows.txt") == ToolResult("one\ntwo")


async def test_an_empty_file_says_so(files: Files) -> None:
    (files.workspace / "empty.txt").touch()
    assert await files.read("empty.txt") == ToolResult("(the file is empty)")


async def test_a_part_of_a_file_can_be_read(files: Files) -> None:
    (files.workspace / "long.txt").write_text("\n".join(f"line {n}" for n in range(1, 1001)))
    result = await files.read("long.txt", first_line=10, lines=2)
    assert result.text == "line 10\nline 11\n… (989 more lines)"
    assert (await files.read("long.txt", first_line=1000)).text == "line 1000"
    beyond = await files.read("long.txt", first_line=5000)
    assert beyond == ToolResult("(the file has only 1000 lines)")


async def test_all_of_a_long_line_can_be_read(files: Files) -> None:
    line = "".join(f"{number}é" for number in range(10_000))
    (files.workspace / "long.txt").write_text(f"first\n{line}\nlast")
    assert (await files.read("long.txt")).text == "first\n… (2 more lines)"
    taken, column = "", 1
    while True:
        part, _, note = (await files.read("long.txt", first_line=2, column=column)).text.partition(
            "\n"
        )
        taken += part
        if "goes on" not in note:
            break
        column = int(note.rpartition("column=")[2].rstrip(")"))
    assert taken == line
    assert note == "last"


async def test_ten_gigabytes_cost_little(files: Files) -> None:
    with (files.workspace / "huge.txt").open("wb") as file:
        file.write((b"x" * 100 + b"\n") * 100)
        file.truncate(10_000_000_000)
    result = await files.read("huge.txt", lines=2)
    assert result.text.endswith("… (more from first_line=3 on; the file has 10000000000 bytes)")
    assert "line 101 goes on" in (await files.read("huge.txt", first_line=101)).text
    far = await files.read("huge.txt", first_line=5000)
    assert not far.ok
    assert "too far" in far.text
    assert not (await files("edit_file", path="huge.txt", old="x", new="y")).ok
    assert (await files("search_files", pattern="x")).text == "(nothing found)"


async def test_no_file_of_another_profile_is_read(files: Files, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Files(tmp_path / "other", files.hand, sandboxed=False)
    assert await other.read(".") == ToolResult("These are the files of another profile.", ok=False)
