"""Counting the files of a folder, whatever is in it and whoever moves it meanwhile."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from parley.agent.processes.disk_usage import DiskUsage, count_usage
from tests.open_files import count_open_files

_MB = 1024 * 1024
_NOBODY = 12_345


@pytest.fixture
def workspace() -> Iterator[Path]:
    """Where others than root reach it; removed by a program that minds no depth."""
    folder = Path(tempfile.mkdtemp(prefix="parley-disk-"))
    folder.chmod(0o755)
    yield folder
    subprocess.run(["chmod", "-R", "u+rwx", str(folder)], check=True)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def _count(workspace: Path, **more: str) -> DiskUsage:
    usage = DiskUsage()
    for _ in count_usage(usage, str(workspace), **more):
        pass
    return usage


def _file(path: Path, size: int = 300_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path


def _du(folder: Path) -> int:
    command = ["du", "-s", "--block-size=1", str(folder)]
    return int(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    )


def _dive(folder: Path, depth: int) -> int:
    """The lowest of so many folders, one in the other; longer than any path can be."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    return handle


def test_it_counts_as_du_does(workspace: Path) -> None:
    for number in range(300):
        _file(workspace / f"f{number % 7}" / str(number), 1 + 997 * number)
    os.link(workspace / "f1" / "1", workspace / "other name")
    (workspace / "far").symlink_to("/usr")
    with (workspace / "sparse").open("wb") as file:
        file.truncate(500 * _MB)
    usage = _count(workspace)
    assert usage.total == usage.workspace == _du(workspace)
    assert (usage.files, usage.sure, usage.still) == (1 + 7 + 300 + 2, True, True)


def test_each_owner_is_counted_apart(workspace: Path, tmp_path: Path) -> None:
    sessions = tmp_path / "session-files"
    for name in ("ann/one/a", "ann/two/b", "ann/two/deep/er/c", "bob/one/a"):
        _file(sessions / name)
    _file(tmp_path / "scratch" / "cache")
    _file(workspace / "shared")
    usage = _count(workspace, sessions=str(sessions), beside=str(tmp_path / "scratch"))
    assert usage.owners == {name: _du(sessions / name) for name in ("ann", "bob")}
    assert usage.beside == _du(tmp_path / "scratch")
    assert usage.total == sum(map(_du, (workspace, sessions, tmp_path / "scratch")))


def test_what_is_not_there_takes_nothing(tmp_path: Path) -> None:
    usage = _count(tmp_path / "gone", sessions=str(tmp_path / "gone too"))
    assert (usage.total, usage.files, usage.sure) == (0, 0, True)


def test_a_link_is_no_way_out(workspace: Path, tmp_path: Path) -> None:
    _file(tmp_path / "outside" / "much", 5 * _MB)
    (workspace / "out").symlink_to(tmp_path / "outside")
    assert _count(workspace).total < _MB


def test_a_folder_that_becomes_a_link_is_no_way_out(workspace: Path, tmp_path: Path) -> None:
    _file(tmp_path / "outside" / "much", 5 * _MB)
    for number in range(5):
        (workspace / f"f{number}").mkdir()

    def change(number: int) -> None:
        for folder in list(workspace.iterdir()):
            if not folder.is_symlink():
                folder.rmdir()
                folder.symlink_to(tmp_path / "outside")

    usage = _count_while(workspace, change)
    assert usage.total < _MB
    assert not usage.still


def test_folders_may_lie_as_deep_as_they_like(workspace: Path) -> None:
    handle = _dive(workspace, 10_000)
    out = os.open("hog", os.O_WRONLY | os.O_CREAT, dir_fd=handle)
    os.write(out, os.urandom(3 * _MB))
    os.close(out)
    os.close(handle)
    _file(workspace / "beside" / "it")
    before = len(list(Path("/proc/self/fd").iterdir()))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 100, hard))
    try:
        usage = _count(workspace)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert usage.total == _du(workspace)
    assert usage.files == 1 + 10_000 + 1 + 2
    assert count_open_files(workspace) == 0


# ── meanwhile ─────────────────────────────────────────────────────────────────────────────────


def _count_while(workspace: Path, change: Callable[[int], None]) -> DiskUsage:
    usage = DiskUsage()
    for number, _ in enumerate(count_usage(usage, str(workspace))):
        change(number)
    return usage


def test_a_folder_that_moves_is_never_counted_twice(workspace: Path) -> None:
    """It is moved at each step of a count in turn, from and to a place that comes later."""
    for number in range(5):
        _file(workspace / f"p{number}" / "in" / "much", 2 * _MB)
    steps = sum(1 for _ in count_usage(DiskUsage(), str(workspace)))
    whole, seen = _du(workspace), set()
    for step in range(steps):
        for mover in range(5):
            here, there = workspace / f"p{mover}" / "in", workspace / f"p{(mover + 3) % 5}" / "came"

            def change(
                number: int, step: int = step, here: Path = here, there: Path = there
            ) -> None:
                if number == step:
                    here.rename(there)

            usage = _count_while(workspace, change)
            assert usage.total <= whole
            seen.add(usage.total // _MB)
            there.rename(here)
    assert max(seen) == whole // _MB


def test_a_large_file_that_moves_is_never_counted_twice(workspace: Path) -> None:
    """From each place to each other one, at each step of a count in turn."""
    places = [workspace / f"p{number}" / "much" for number in range(4)]
    for place in places:
        place.parent.mkdir()
    steps = sum(1 for _ in count_usage(DiskUsage(), str(workspace)))
    for step, here, there in product(range(steps), places, places):
        _file(here, 2 * _MB)

        def change(number: int, step: int = step, here: Path = here, there: Path = there) -> None:
            if number == step:
                here.rename(there)

        assert _count_while(workspace, change).total < 3 * _MB
        there.unlink()


def test_a_deep_folder_that_is_moved_leads_nowhere_else(workspace: Path, tmp_path: Path) -> None:
    """Where the way back does not lead to where we came from, the count says so and goes on."""
    os.close(_dive(workspace, 200))
    middle, aside = workspace.joinpath(*["d"] * 100), tmp_path / "outside" / "d"
    for number in range(20):  # names that are the same outside, where there is more
        _file(middle.parent / f"e{number}" / "file", 4096)
        _file(aside.parent / f"e{number}" / "file", 5 * _MB)
    steps = sum(1 for _ in count_usage(DiskUsage(), str(workspace)))
    whole, still = _du(workspace), set()
    for step in range(0, steps, 7):

        def change(number: int, step: int = step) -> None:
            if number == step:
                middle.rename(aside)

        usage = _count_while(workspace, change)
        assert usage.total <= whole
        still.add(usage.still)
        aside.rename(middle)
    assert still == {True, False}
    assert count_open_files(workspace) == 0


def test_a_folder_that_is_gone_is_told(workspace: Path) -> None:
    for number in range(20):
        _file(workspace / f"f{number}" / "file")

    def change(number: int) -> None:
        for folder in list(workspace.iterdir())[:2]:
            shutil.rmtree(folder)

    usage = _count_while(workspace, change)
    assert not usage.still
    assert usage.sure


# ── locked folders ────────────────────────────────────────────────────────────────────────────


def _as_nobody(workspace: Path) -> dict[str, int | bool]:
    """Counted by who may not read everything, as root may."""
    inside, outside = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(_NOBODY, _NOBODY, _NOBODY)
                os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            usage = _count(workspace)
            told = {"total": usage.total, "files": usage.files, "sure": usage.sure}
            os.write(outside, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(outside)
    os.waitpid(child, 0)
    with os.fdopen(inside) as file:
        found: dict[str, int | bool] = json.load(file)
    return found


def _give(workspace: Path, uid: int) -> None:
    for path in (workspace, *workspace.rglob("*")):
        os.chown(path, uid, uid)


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o200, 0o300, 0o400])
def test_a_folder_that_locks_its_owner_out_is_counted_and_stays_locked(
    workspace: Path, mode: int
) -> None:
    _file(workspace / "locked" / "inner" / "much", 2 * _MB)
    _file(workspace / "locked" / "other", 2 * _MB)
    if os.geteuid() == 0:
        _give(workspace, _NOBODY)
    whole = _du(workspace)
    for folder in (workspace / "locked" / "inner", workspace / "locked"):
        folder.chmod(mode)
    assert _as_nobody(workspace) == {"total": whole, "files": 5, "sure": True}
    assert (workspace / "locked").stat().st_mode & 0o777 == mode
    (workspace / "locked").chmod(0o700)
    assert (workspace / "locked" / "inner").stat().st_mode & 0o777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")
def test_what_cannot_be_seen_is_told(workspace: Path) -> None:
    _file(workspace / "of root" / "much", 2 * _MB)
    (workspace / "of root").chmod(0o700)
    found = _as_nobody(workspace)
    assert not found["sure"]
