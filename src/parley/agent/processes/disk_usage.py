"""Disk space that the files of a profile take, counted in small steps.

A count stands whatever a command does meanwhile: it follows no link, uses no path that can become
too long, opens few folders at a time however deep they lie, and counts a file with several names
or a folder that moves once. The keeper loads it, so it is of the standard library alone.
"""

# `pathlib` and `contextlib` cost more to import than they save here.
# ruff: noqa: PTH101, PTH116, PTH120

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DiskUsage", "count_usage", "free_space"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ENTRIES_IN_A_STEP = 100
_MOST_OPEN = 32
# Smaller files are not remembered: one that moves meanwhile may be counted twice.
_REMEMBERED_BLOCKS = 128
_READ_AND_ENTER = stat.S_IRUSR | stat.S_IXUSR


class DiskUsage:
    """What was found: bytes of the workspace, of each owner of session files, and beside them.

    `files` counts folders and links too. It is `sure` unless there was a part that could not be
    looked at, and `still` unless a folder was gone before it was looked at.
    """

    def __init__(self) -> None:
        self.workspace = 0
        self.owners: dict[str, int] = {}
        self.beside = 0
        self.files = 0
        self.sure = True
        self.still = True
        self.devices: set[int] = set()

    @property
    def total(self) -> int:
        return self.workspace + sum(self.owners.values()) + self.beside


def free_space(path: str) -> tuple[int, int]:
    """Bytes and files that the file system has left."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0, 0
    return found.f_bfree * found.f_frsize, found.f_ffree


def count_usage(
    usage: DiskUsage, workspace: str, sessions: str | None = None, beside: str | None = None
) -> Iterator[None]:
    """Count into `usage`, a little with each step.

    In `sessions` lies a folder of each owner. What is mounted in one of the folders is not counted.
    """
    seen: set[tuple[int, int]] = set()
    walk = _Walk(usage, seen)
    yield from walk.go(workspace)
    usage.workspace += walk.bytes
    if sessions is not None:
        walk = _Walk(usage, seen)
        yield from walk.go(sessions, usage.owners)
        usage.workspace += walk.bytes - sum(usage.owners.values())  # the folder itself
    if beside is not None:
        walk = _Walk(usage, seen)
        yield from walk.go(beside)
        usage.beside += walk.bytes


class _Level:
    """A folder that is looked at: its folders are left to be."""

    def __init__(self, handle: int, id: tuple[int, int]) -> None:
        self.handle = handle
        self.id = id
        self.names: list[str] = []


class _Walk:
    """Each folder is opened in the one before it; the way back is `..`, if that is still true."""

    def __init__(self, usage: DiskUsage, seen: set[tuple[int, int]]) -> None:
        self.bytes = 0
        self._usage = usage
        self._seen = seen
        self._levels: list[_Level] = []
        self._device = -1

    def go(self, root: str, parts: dict[str, int] | None = None) -> Iterator[None]:
        """With `parts`, what each entry of the root takes."""
        try:
            yield from self._enter(root, None)
            name, before = "", self.bytes
            while self._levels:
                if parts is not None and len(self._levels) == 1:
                    if name:
                        parts[name] = parts.get(name, 0) + self.bytes - before
                    name, before = next(iter(self._levels[0].names[-1:]), ""), self.bytes
                level = self._levels[-1]
                if level.names:
                    yield from self._enter(level.names.pop(), level.handle)
                else:
                    self._leave()
                yield
        finally:
            for level in self._levels:
                _close(level.handle)

    def _enter(self, name: str, parent: int | None) -> Iterator[None]:
        try:
            handle = _open(name, parent)
        except PermissionError:
            self._usage.sure = False
            return
        except OSError as error:
            if parent is not None or not isinstance(error, FileNotFoundError):
                self._usage.still = False
            return
        try:
            status = os.fstat(handle)
        except OSError:
            _close(handle)
            self._usage.sure = False
            return
        if not self._levels:
            self._device = status.st_dev
            self._usage.devices.add(status.st_dev)
        id = (status.st_dev, status.st_ino)
        if status.st_dev != self._device or id in self._seen:
            _close(handle)
            return
        self._seen.add(id)
        self._add(status)
        level = _Level(handle, id)
        self._levels.append(level)
        if len(self._levels) > _MOST_OPEN + 1:  # the root stays open
            far = self._levels[-_MOST_OPEN - 1]
            _close(far.handle)
            far.handle = -1
        yield from self._list(level, status)

    def _list(self, level: _Level, status: os.stat_result) -> Iterator[None]:
        closed = os.geteuid() != 0 and status.st_mode & _READ_AND_ENTER != _READ_AND_ENTER
        lent = _lend(level.handle) if closed else None
        number = 0
        try:
            with os.scandir(level.handle) as entries:
                for entry in entries:
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            level.names.append(entry.name)
                        else:
                            self._add(entry.stat(follow_symlinks=False))
                    except FileNotFoundError:
                        continue
                    except OSError:
                        self._usage.sure = False
                    number += 1
                    if number % _ENTRIES_IN_A_STEP == 0 and not closed:
                        yield
        except OSError:
            self._usage.sure = False
        finally:
            _take_back(level.handle, lent)

    def _add(self, status: os.stat_result) -> None:
        if not stat.S_ISDIR(status.st_mode) and (
            status.st_nlink > 1 or status.st_blocks >= _REMEMBERED_BLOCKS
        ):
            id = (status.st_dev, status.st_ino)
            if id in self._seen:
                return
            self._seen.add(id)
        self._usage.files += 1
        self.bytes += status.st_blocks * 512

    def _leave(self) -> None:
        done = self._levels.pop()
        if self._levels and self._levels[-1].handle < 0:
            parent = self._levels[-1]
            parent.handle = _parent_of(done.handle, parent.id)
            if parent.handle < 0:  # it was moved: what is left above it cannot be found again
                self._usage.still = False
                for level in self._levels[1:]:
                    _close(level.handle)
                del self._levels[1:]
        _close(done.handle)


def _parent_of(handle: int, wanted: tuple[int, int]) -> int:
    """The folder above it, when it is the one that we came from; else -1."""
    try:
        found = _open("..", handle)
    except OSError:
        return -1
    status = os.fstat(found)
    if (status.st_dev, status.st_ino) == wanted:
        return found
    os.close(found)
    return -1


# ── folders that lock their owner out ─────────────────────────────────────────────────────────


def _open(name: str, parent: int | None) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        if not hasattr(os, "O_PATH"):
            raise
    above = os.path.dirname(name) if parent is None else parent
    lent = _lend(above)
    try:
        place = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    finally:
        _take_back(above, lent)
    try:
        itself = f"/proc/self/fd/{place}"
        lent = _lend(itself)
        try:
            return os.open(itself, _FOLDER & ~os.O_NOFOLLOW)
        finally:
            _take_back(itself, lent)
    finally:
        os.close(place)


def _lend(folder: int | str) -> int | None:
    """Let the owner, when it is us, read and enter a folder for a moment; what it was before."""
    try:
        status = os.stat(folder)
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid != os.geteuid() or mode & _READ_AND_ENTER == _READ_AND_ENTER:
            return None
        os.chmod(folder, mode | _READ_AND_ENTER)
    except OSError:
        return None
    return mode


def _take_back(folder: int | str, mode: int | None) -> None:
    """As it was, unless somebody has changed it since."""
    if mode is None:
        return
    try:
        if stat.S_IMODE(os.stat(folder).st_mode) == mode | _READ_AND_ENTER:
            os.chmod(folder, mode)
    except OSError:
        pass


def _close(handle: int) -> None:
    if handle >= 0:
        os.close(handle)
