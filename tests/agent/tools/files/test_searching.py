"""`search_files` finds the same with ripgrep and without it, and always ends."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from parley.agent.sandbox import Sandbox, SandboxMode, find_sandbox
from parley.agent.tools import ToolResult
from parley.agent.tools.files import FileHand
from tests.agent.tools.files.conftest import SECRET, Files, make_hand

RIPGREP = shutil.which("rg") or shutil.which("rg", path=str(Path(sys.executable).parent))


@pytest.fixture(params=["ripgrep", "alone"])
async def files(workspace: Path, request: pytest.FixtureRequest) -> AsyncIterator[Files]:
    if request.param == "alone":
        hand = make_hand(workspace, "off")
    elif RIPGREP is None or not find_sandbox("auto").contains:
        pytest.skip("there is no ripgrep, or no sandbox for it")
    else:
        hand = make_hand(workspace, "auto")
    yield Files(workspace, hand, sandboxed=request.param == "ripgrep")
    await hand.close()


@pytest.fixture
def tree(workspace: Path) -> Path:
    for path, content in {
        "a.txt": b"one\ntwo Two\n",
        "a/z.py": b"def two():\r\n    pass\r\n",
        "a/b/c.py": b"# two\n",
        "b.bin": b"two\n" + b"x" * 100_000 + b"\0",
        ".hidden/x.py": b"two\n",
        ".git/config": b"two\n",
        "node_modules/x.js": b"two\n",
        "old.txt": b"caf\xe9 two\n",
        "big.txt": b"two\n" * 1_250_001,
        "empty.py": b"",
    }.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_bytes(content)
    (workspace / "link").symlink_to(workspace.parent)
    (workspace / "link.txt").symlink_to(workspace.parent / "secret.txt")
    os.mkfifo(workspace / "pipe")
    return workspace


async def find(files: Files, pattern: str, **more: Any) -> list[str]:
    result = await files("search_files", pattern=pattern, **more)
    assert result.ok, result.text
    return result.text.split("\n")


async def test_lines_are_found_with_their_places(files: Files, tree: Path) -> None:
    assert await find(files, "two") == [
        "a/b/c.py:1: # two",
        "a/z.py:1: def two():",
        "a.txt:2: two Two",
        "old.txt:1: caf� two",
    ]
    assert await find(files, r"^def \w+\(\):$") == ["a/z.py:1: def two():"]
    assert await find(files, "(?i)TWO$") == [
        "a/b/c.py:1: # two",
        "a.txt:2: two Two",
        "old.txt:1: caf� two",
    ]


async def test_plain_text_is_no_expression(files: Files, tree: Path) -> None:
    assert await find(files, "two()", plain=True) == ["a/z.py:1: def two():"]
    assert await find(files, "t.o", plain=True) == ["(nothing found)"]
    assert await find(files, "-e", plain=True) == ["(nothing found)"]


async def test_names_can_be_chosen(files: Files, tree: Path) -> None:
    both = ["a/b/c.py:1: # two", "a/z.py:1: def two():"]
    for glob in ("*.py", "{*.py,*.js}", "a/**", "**/*.py", "a/", "[c-z].py"):
        assert await find(files, "two", glob=glob) == both, glob
    for glob in ("a/*.py", "./a/*.py", "/a/*.py", "z.*", "?.py"):
        assert "a/z.py:1: def two():" in await find(files, "two", glob=glob), glob
    for glob in (".*", "*.js", ".hidden/*", "!a.txt", "b/*.py", "a"):
        assert await find(files, "two", glob=glob) == ["(nothing found)"], glob


async def test_a_place_can_be_chosen(files: Files, tree: Path) -> None:
    assert await find(files, "two", path="a/b") == ["a/b/c.py:1: # two"]
    assert await find(files, "two", path=str(tree / "a" / "b")) == ["a/b/c.py:1: # two"]
    assert await find(files, "two", path="a", glob="b/*") == ["a/b/c.py:1: # two"]
    assert await find(files, "two", path="a/z.py") == ["a/z.py:1: def two():"]
    assert await find(files, "two", path=".hidden") == [".hidden/x.py:1: two"]


async def test_only_names_can_be_asked_for(files: Files, tree: Path) -> None:
    names = ["a/b/c.py", "a/z.py", "a.txt", "old.txt"]
    assert await find(files, "two", names_only=True) == names
    assert await find(files, "", names_only=True, glob="*.py") == ["a/b/c.py", "a/z.py", "empty.py"]
    assert "b.bin" in await find(files, "", names_only=True)


async def test_what_only_python_can_match_is_matched(files: Files, tree: Path) -> None:
    assert await find(files, r"(?<=def )two(?=\()") == ["a/z.py:1: def two():"]


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{99999999999999}", "(?P<x>"])
async def test_a_pattern_that_is_none_is_explained(files: Files, pattern: str) -> None:
    result = await files("search_files", pattern=pattern)
    assert not result.ok
    assert "plain=true" in result.text


@pytest.mark.parametrize("path", ["..", "/etc", "link", "link/workspace/a", "nowhere"])
async def test_nothing_is_searched_outside(files: Files, tree: Path, path: str) -> None:
    result = await files("search_files", pattern="", path=path)
    assert not result.ok


async def test_what_is_found_has_bounds(files: Files, workspace: Path) -> None:
    (workspace / "long.txt").write_text("x" * 1000 + "needle" + "y" * 1000)
    (line,) = await find(files, "needle")
    assert line.startswith("long.txt:1: …x")
    assert "needle" in line
    assert len(line) < 330
    (workspace / "many.txt").write_text("needle\n" * 10_000)
    lines = await find(files, "needle")
    assert len(lines) == 201
    assert lines[-1] == "… (there is more: narrow the pattern, path or glob)"
    (workspace / "wide.txt").write_text(("needle" + "z" * 400 + "\n") * 300)
    assert len("\n".join(await find(files, "needlez"))) < 17_000


async def test_a_secret_beside_the_workspace_is_not_found(files: Files, tree: Path) -> None:
    assert await find(files, SECRET) == ["(nothing found)"]


async def test_a_pattern_that_never_ends_is_ended(workspace: Path) -> None:
    (workspace / "a.txt").write_text("a" * 50 + "!")
    (workspace / "b.txt").write_text("fine")
    hand = make_hand(workspace, "off", seconds=0.5)
    files = Files(workspace, hand, sandboxed=False)
    try:
        result = await files("search_files", pattern=r"^(a+)+\1$")
        assert not result.ok
        assert "simpler pattern" in result.text
        assert await files.read("b.txt") == ToolResult("fine")
    finally:
        await hand.close()


async def test_ripgrep_is_used_in_a_sandbox_alone(
    workspace: Path, tmp_path: Path, mode: SandboxMode
) -> None:
    """It opens by paths, so that a swapped folder could lead it out."""
    fake = tmp_path / "bin" / "rg"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n/bin/touch {workspace}/used\n")
    fake.chmod(0o755)

    def sandbox() -> Sandbox:
        return find_sandbox(mode)

    hand = FileHand(workspace, sandbox=sandbox, environment={"PATH": str(fake.parent)})
    try:
        await hand.call("search", path=".", pattern="x", glob=None, plain=False, names_only=False)
    finally:
        await hand.close()
    assert (workspace / "used").exists() == (mode == "auto")
