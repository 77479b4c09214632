"""`read_file` reads what is in the workspace, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from parley.agent.tools import ToolResult
from parley.agent.tools.files import read_file
from parley.protocol import ToolCall
from tests.agent.builders import context


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("the secret")
    return folder


async def read(workspace: Path, path: str, **more: Any) -> ToolResult:
    call = ToolCall("c1", "read_file", {"path": path, **more})
    return await read_file.run(call, context(workspace))


async def test_a_file_is_read(workspace: Path) -> None:
    (workspace / "notes.txt").write_text("one\ntwo\n")
    assert await read(workspace, "notes.txt") == ToolResult("one\ntwo")
    assert await read(workspace, str(workspace / "notes.txt")) == ToolResult("one\ntwo")
    assert await read(workspace, "./x/../notes.txt") == ToolResult("one\ntwo")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "x/../../secret.txt",
        "{outside}/secret.txt",
        "/etc/passwd",
        "~/.ssh/id_rsa",
        "link.txt",
        "folder/secret.txt",
        "../workspace-of-another/notes.txt",
        "..",
        "/",
    ],
)
async def test_what_lies_outside_is_refused(workspace: Path, path: str) -> None:
    outside = workspace.parent
    (workspace / "link.txt").symlink_to(outside / "secret.txt")
    (workspace / "folder").symlink_to(outside, target_is_directory=True)
    (outside / "workspace-of-another").mkdir()
    (outside / "workspace-of-another" / "notes.txt").write_text("the secret")
    result = await read(workspace, path.format(outside=outside))
    assert not result.ok
    assert "outside the workspace" in result.text
    assert "the secret" not in result.text


async def test_a_link_that_stays_inside_is_followed(workspace: Path) -> None:
    (workspace / "notes.txt").write_text("one")
    (workspace / "link.txt").symlink_to("notes.txt")
    assert await read(workspace, "link.txt") == ToolResult("one")


@pytest.mark.parametrize("path", ["a\0b", "\0", "~no-such-user-anywhere/x", "loop", "x" * 5000])
async def test_a_path_that_is_none_is_answered(workspace: Path, path: str) -> None:
    (workspace / "loop").symlink_to("pool")
    (workspace / "pool").symlink_to("loop")
    result = await read(workspace, path)
    assert not result.ok
    assert result.text


async def test_a_missing_file_is_named(workspace: Path) -> None:
    result = await read(workspace, "notes.txt")
    assert result == ToolResult("There is no notes.txt in the workspace.", ok=False)
    (workspace / "notes.txt").write_text("one")
    assert not (await read(workspace, "notes.txt/below")).ok


async def test_a_folder_is_listed(workspace: Path) -> None:
    (workspace / "b.txt").touch()
    (workspace / "a").mkdir()
    assert await read(workspace, ".") == ToolResult("a/\nb.txt")
    assert await read(workspace, "a") == ToolResult("(the folder is empty)")


async def test_a_pipe_is_not_waited_for(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    result = await read(workspace, "pipe")
    assert result == ToolResult("pipe is not an ordinary file.", ok=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
async def test_a_device_is_refused(workspace: Path) -> None:
    try:
        os.mknod(workspace / "zero", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this machine makes no devices")
    result = await read(workspace, "zero")
    assert not result.ok


async def test_a_binary_file_is_refused(workspace: Path) -> None:
    (workspace / "image.png").write_bytes(b"\x89PNG\0\0\0")
    assert await read(workspace, "image.png") == ToolResult(
        "image.png is not a text file.", ok=False
    )


async def test_bytes_that_are_not_utf_8_are_replaced(workspace: Path) -> None:
    (workspace / "old.txt").write_bytes(b"caf\xe9")
    assert await read(workspace, "old.txt") == ToolResult("caf�")


async def test_an_empty_file_says_so(workspace: Path) -> None:
    (workspace / "empty.txt").touch()
    assert await read(workspace, "empty.txt") == ToolResult("(the file is empty)")


async def test_a_part_of_a_file_can_be_read(workspace: Path) -> None:
    (workspace / "long.txt").write_text("\n".join(f"line {n}" for n in range(1, 1001)))
    result = await read(workspace, "long.txt", first_line=10, lines=2)
    assert result.text == "line 10\nline 11\n… (989 more lines)"
    beyond = await read(workspace, "long.txt", first_line=5000)
    assert beyond == ToolResult("(the file has only 1000 lines)")


async def test_a_huge_file_costs_little(workspace: Path) -> None:
    with (workspace / "huge.txt").open("wb") as file:
        file.write(b"x" * 1000 + b"\n")
        file.truncate(5_000_000_000)
    result = await read(workspace, "huge.txt")
    assert len(result.text) < 21_000


async def test_a_long_line_is_cut(workspace: Path) -> None:
    (workspace / "long.txt").write_text("x" * 100_000)
    result = await read(workspace, "long.txt")
    assert len(result.text) < 21_000
    assert "more characters were left out" in result.text
