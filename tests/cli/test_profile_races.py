"""An export while a command in the workspace swaps folders for links: nothing from outside."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from parley.config.homes import copy_tree
from parley.config.tree import DEEPEST, open_top, remove_tree, walk_tree
from parley.profiles import Profile
from parley.storage.archive import Packed, pack
from tests.cli.command import Parley
from tests.cli.profile_homes import made

_SECRET = b"a-canary"
_FOLDERS = 40
# As a command in the sandbox would: each folder is a folder, then a link, then a folder again.
_SWAPPER = f"""
import os, sys
workspace, *targets = sys.argv[1:]
os.chdir(workspace)
for number in range({_FOLDERS}):
    os.mkdir(f"d{{number:02}}")
    open(f"d{{number:02}}/mine", "w").close()
    os.symlink(targets[number % len(targets)], f"l{{number:02}}")
print("ready", flush=True)
while os.getppid() == int(os.environ["PARENT"]):
    for number in range({_FOLDERS}):
        folder, link = f"d{{number:02}}", f"l{{number:02}}"
        os.rename(folder, "away")
        os.rename(link, folder)
        os.rename(folder, link)
        os.rename("away", folder)
"""


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    profile = made(Parley(tmp_path / "home"), "coder")
    profile.env_file.write_bytes(b"OPENAI_API_KEY=" + _SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "mine").write_bytes(_SECRET)
    return profile


@pytest.fixture
def swapped(profile: Profile, tmp_path: Path) -> Iterator[Profile]:
    """The profile, with a process that swaps its folders until the end of the test."""
    places = map(str, (profile.workspace, profile.home, tmp_path / "outside"))
    process = subprocess.Popen(
        [sys.executable, "-c", _SWAPPER, *places],
        env=os.environ | {"PARENT": str(os.getpid())},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield profile
        assert process.poll() is None, "the loop did not run"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _packed(profile: Profile, scratch: Path) -> tuple[Packed, bytes]:
    target = io.BytesIO()
    packed = pack(profile, target, scratch=scratch, secrets=False, logs=False, copy=True)
    return packed, gzip.decompress(target.getvalue())


def test_an_export_never_follows_a_folder_that_becomes_a_link(
    swapped: Profile, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        _, content = _packed(swapped, scratch)
        assert _SECRET not in content
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            assert not [name for name in tar.getnames() if name.endswith((".env", "SOUL.md/"))]


def test_the_command_itself_takes_nothing_from_outside(swapped: Profile, tmp_path: Path) -> None:
    archive = tmp_path / "it.tar.gz"
    done = Parley(tmp_path / "home").run("profile", "export", "coder", str(archive))
    assert done.returncode == 0, done.stderr
    assert _SECRET not in gzip.decompress(archive.read_bytes())


def test_a_copy_of_a_tree_follows_no_link_either(swapped: Profile, tmp_path: Path) -> None:
    deadline = time.monotonic() + 3
    number = 0
    while time.monotonic() < deadline:
        copy = tmp_path / f"copy{number}"
        copy.mkdir()
        copy_tree(swapped.workspace, copy)
        for folder, _, files in os.walk(copy):  # follows no link
            for file in files:
                path = Path(folder, file)
                assert path.is_symlink() or path.read_bytes() != _SECRET
                assert file != ".env"
        remove_tree(copy)
        assert not copy.exists()
        number += 1


def test_removing_a_tree_removes_nothing_behind_its_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    tree = tmp_path / "tree"
    closed = tree / "a" / "closed"
    closed.mkdir(parents=True)
    (closed / "file").write_text("x")
    (tree / "link").symlink_to(outside)
    (tree / "a" / "link").symlink_to(outside / "mine")
    closed.chmod(0o000)
    (tree / "a").chmod(0o500)
    remove_tree(tree)
    assert not tree.exists()
    assert (outside / "mine").read_text() == "mine"


def test_a_tree_of_any_depth_is_exported_in_part_and_removed_whole(
    profile: Profile, tmp_path: Path
) -> None:
    """What lies too deep is left out and told; it does not stop the export."""
    here = os.open(profile.workspace, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    packed, content = _packed(profile, scratch)
    assert packed.deep == ["workspace" + "/deep" * DEEPEST]
    assert b"You are coder." in content
    with open_top(profile.home) as top:
        assert max(entry.path.count("/") for entry in walk_tree(top)) == DEEPEST - 1
    remove_tree(profile.workspace)
    assert not profile.workspace.exists()


def test_descriptors_are_closed_when_a_walk_is_given_up(profile: Profile) -> None:
    (profile.workspace / "a" / "b" / "c").mkdir(parents=True)

    def opened() -> list[str]:
        found = []
        for link in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # closed by another thread meanwhile
                found.append(str(link.readlink()))
        return sorted(path for path in found if path.startswith(str(profile.home)))

    with open_top(profile.home) as top:
        walk = walk_tree(top)
        next(entry for entry in walk if entry.name == "c")
        assert len(opened()) > 1
        walk.close()
        assert opened() == [str(profile.home)]
