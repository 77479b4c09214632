"""No path leads out of the root, whatever it is made of and whoever changes the tree meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.agent.tools.files.hand.beneath import Refused, Root
from parley.agent.tools.files.hand.reading import read
from parley.agent.tools.files.hand.searching import search
from parley.agent.tools.files.hand.wanted import Search
from parley.agent.tools.files.hand.writing import edit, write
from tests.agent.tools.files.conftest import SECRET, names_in
from tests.open_files import count_open_files

PARTS = (
    "..",
    ".",
    "",
    "a",
    "b",
    "c.txt",
    "out",
    "up",
    "loop",
    "abs",
    "gone",
    "ws",
    "~",
    "x\0",
    "é",
)


@contextmanager
def a_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as outer:
        outside = Path(outer).resolve()
        (outside / "ws" / "a" / "b").mkdir(parents=True)
        (outside / "c.txt").write_text(SECRET)
        workspace = outside / "ws"
        (workspace / "c.txt").write_text("inside")
        (workspace / "a" / "c.txt").write_text("inside")
        for folder in (workspace, workspace / "a", workspace / "a" / "b"):
            (folder / "out").symlink_to(outside)
            (folder / "up").symlink_to("..")
            (folder / "loop").symlink_to("loop")
            (folder / "abs").symlink_to(workspace / "a" / "up")
        yield workspace


def inside_of(workspace: Path, folder: int) -> bool:
    real = Path(f"/proc/self/fd/{folder}").readlink()
    return real == workspace or workspace in real.parents


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="it is asked of /proc")
@settings(max_examples=300, deadline=None)
@given(
    parts=st.lists(st.sampled_from(PARTS), max_size=12), absolute=st.sampled_from(["", "/", "ws"])
)
def test_no_path_leads_out(parts: list[str], absolute: str) -> None:
    with a_tree() as workspace:
        start = f"{workspace}/" if absolute == "ws" else absolute
        path = start + "/".join(parts)
        root = Root(str(workspace))
        before = count_open_files(workspace)
        with suppress(Refused, OSError), root.find(path) as place:
            assert inside_of(workspace, place.folder)
            assert place.name is None or "/" not in place.name
            if "gone" not in parts and not place.missing:
                real = os.path.realpath(workspace / path.replace("~", ".", 1))
                assert real == str(workspace / place.path)
        with suppress(Refused, OSError):
            assert SECRET not in read(root, path, 1, 500, 1)
        with suppress(Refused, OSError):
            write(root, path, "changed")
        assert (workspace.parent / "c.txt").read_text() == SECRET
        assert names_in(workspace.parent) == ["c.txt", "ws"]
        assert count_open_files(workspace) == before
        root.close()


@settings(max_examples=200, deadline=None)
@given(path=st.text(max_size=30))
def test_any_text_is_a_path_or_is_refused(path: str) -> None:
    with a_tree() as workspace:
        root = Root(str(workspace))
        with suppress(Refused, OSError):
            assert SECRET not in read(root, path, 1, 500, 1)
        root.close()


@pytest.fixture
def swapped(tmp_path: Path) -> Path:
    """A workspace whose `sub` and `sub/notes.txt` have links to what lies outside beside them."""
    outside, workspace = tmp_path / "outside", tmp_path / "ws"
    for folder in (outside, workspace / "sub", workspace / "sub" / "new"):
        folder.mkdir(parents=True)
    (outside / "notes.txt").write_text(SECRET)
    (workspace / "sub" / "notes.txt").write_text("inside")
    (workspace / "link").symlink_to(outside)
    (workspace / "sub" / "link.txt").symlink_to(outside / "notes.txt")
    return workspace


def acts_on(root: Root) -> list[Callable[[], str]]:
    wanted = Search(pattern="", glob="*", plain=False, names_only=False)
    return [
        lambda: read(root, "sub/notes.txt", 1, 500, 1),
        lambda: search(root, wanted, "sub", None),
        lambda: search(root, wanted, ".", None),
        lambda: search(root, wanted, "sub/notes.txt", None),
        lambda: write(root, "sub/new.txt", "inside"),
        lambda: write(root, "sub/new/deep.txt", "inside"),
        lambda: write(root, "sub/notes.txt", "inside"),
        lambda: edit(root, "sub/notes.txt", "inside", "inside ", False),
        # To find it is to have read it.
        lambda: edit(root, "sub/notes.txt", SECRET, "inside ", False) + SECRET,
    ]


def outcome(act: Callable[[], str]) -> str:
    try:
        return act()
    except (Refused, OSError) as error:
        return f"refused: {error}"


def assert_untouched(outside: Path) -> None:
    assert names_in(outside) == ["notes.txt"]
    assert (outside / "notes.txt").read_text() == SECRET


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize(("name", "link"), [("sub", "link"), ("sub/notes.txt", "sub/link.txt")])
def test_a_swap_at_the_worst_moment_leads_nowhere(
    swapped: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int, name: str, link: str
) -> None:
    """Just after it was seen that a name is no link, it becomes one."""
    root = Root(str(swapped))
    look, looks = os.stat, 0

    def look_and_swap(path: Any, **how: Any) -> os.stat_result:
        nonlocal looks
        seen = look(path, **how)
        looks += path == Path(name).name
        if looks == after and path == Path(name).name:
            (swapped / name).rename(swapped / "away")
            (swapped / link).rename(swapped / name)
        return seen

    act = acts_on(root)[number]
    with monkeypatch.context() as patched:
        patched.setattr("parley.agent.tools.files.hand.beneath.os.stat", look_and_swap)
        said = outcome(act)
    assert SECRET not in said
    assert_untouched(swapped.parent / "outside")
    root.close()


SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
parent = os.getppid()
while os.getppid() == parent:
    for one, other in ((b"sub", b"link"), (b"sub/notes.txt", b"sub/link.txt")):
        for _ in range(20):
            libc.renameat2(-100, one, -100, other, 2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux swaps two names at once")
def test_names_that_are_swapped_all_the_time_lead_nowhere(swapped: Path) -> None:
    root = Root(str(swapped))
    seen = set()
    swapper = subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAPPER, str(swapped)])
    try:
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            for act in acts_on(root):
                said = outcome(act)
                assert SECRET not in said
                seen.add(said.startswith("refused"))
    finally:
        swapper.kill()
        swapper.wait()
        root.close()
    assert_untouched(swapped.parent / "outside")
    assert seen == {True, False}
