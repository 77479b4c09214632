"""Memory that a command and all that it started hold, and why they must end when it is too much.

The limit of the kernel is for one process and its address space. This one is for all of them, and
counts what belongs to no address space too: files in memory that are open (`memfd_create`), and
what lies in the sandbox's own `/tmp` and `/dev/shm`. The keeper loads it, so it is of the standard
library alone.
"""

# `pathlib` costs more to import than it saves here.
# ruff: noqa: PTH116, PTH123, PTH208

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["MemoryWatch", "OpenFiles", "open_files"]

_MB = 1024 * 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SMALLEST_FALL = 8 * _MB
_REGULAR_SECONDS = 1.0
_SOONEST = 0.01
# A count that takes long is not made again before it has paused so many times as long.
_REST = 20.0
_REST_WHILE_IT_GROWS = 4.0
_MIN_OF_A_CULPRIT = 64 * _MB
_TIMES_WHAT_IS_LEFT = 4


class MemoryWatch:
    """`look` says why the command must end, or None. It costs little while nothing grows."""

    def __init__(self, limit: int, *, wrapped: bool) -> None:
        self._limit = limit
        self._wrapped = wrapped
        self._next_count = 0.0
        self._soonest = 0.0
        self._left_then = 0
        self._shared_dev = _dev_of_memfd()
        self.used = 0
        _, self._shmem_then = _machine()
        self._mounts = [] if wrapped else list(_memory_mounts())
        self._in_mounts = sum(map(_used_in, self._mounts))

    def look(self, pids: Callable[[], Iterable[int]]) -> str | None:
        now = time.monotonic()
        left, shmem = _machine()
        grew = self._left_then - left > max(_SMALLEST_FALL, (self._limit - self.used) // 2)
        if now < (self._soonest if grew else self._next_count):
            return None
        self._left_then = left
        found = list(pids())
        self.used = self._count(found, shmem)
        done = time.monotonic()
        self._next_count = done + max(_REGULAR_SECONDS, (done - now) * _REST)
        self._soonest = done + max(_SOONEST, (done - now) * _REST_WHILE_IT_GROWS)
        if self.used > self._limit:
            return (
                f"it held {self.used // _MB} MB of memory with all that it started, and "
                f"terminal.memory_mb allows {self._limit // _MB}"
            )
        if self.used > _MIN_OF_A_CULPRIT and 0 < left * _TIMES_WHAT_IS_LEFT < self.used:
            return (
                f"it held {self.used // _MB} MB of memory while the machine had only "
                f"{left // _MB} MB left"
            )
        return None

    # ── counting ──────────────────────────────────────────────────────────────────────────────

    def _count(self, pids: list[int], shmem: int) -> int:
        """At first too much rather than too little; only when that is past the limit, exactly."""
        files = open_files(pids)
        beside = self._beside(files, pids)
        if files.hidden:  # somebody does not let us look at what it holds
            beside += max(0, shmem - self._shmem_then - beside)
        rough = beside + sum(map(_resident, pids))
        if rough <= self._limit:
            return rough
        return beside + sum(self._held(pid, files) for pid in pids)

    def _beside(self, files: OpenFiles, pids: list[int]) -> int:
        """What is held by no mapping: files in memory, and file systems in memory."""
        in_files = sum(size for (dev, _), size in files.deleted.items() if dev == self._shared_dev)
        if not self._wrapped:
            return in_files + max(0, sum(map(_used_in, self._mounts)) - self._in_mounts)
        return in_files + _in_sandbox(pids)

    def _held(self, pid: int, files: OpenFiles) -> int:
        """Its share of what is mapped, without what was counted as a file."""
        try:
            with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
                return _share(file, self._shared_dev, files)
        except OSError:
            return _resident(pid)


class OpenFiles:
    """The deleted files that processes hold open, by device and inode, and what they take."""

    def __init__(self) -> None:
        self.deleted: dict[tuple[int, int], int] = {}
        self.hidden = False


def open_files(pids: Iterable[int]) -> OpenFiles:
    """What has no name any more, a `memfd` too, is found by whoever holds it alone."""
    found = OpenFiles()
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)
        except PermissionError:
            found.hidden = True
            continue
        except OSError:
            continue  # it ended
        for name in names:
            try:
                status = os.stat(f"{folder}/{name}")
            except OSError:
                continue
            if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
                found.deleted[status.st_dev, status.st_ino] = status.st_blocks * 512
    return found


def _share(lines: Iterable[str], shared_dev: int, files: OpenFiles) -> int:
    """Of `smaps`: what is its own, and its share of what is shared in memory alone.

    What a file on disk backs can be read again at any time and is not counted.
    """
    total, counted, wanted = 0, True, "Pss:"
    for line in lines:
        first = line.partition(" ")[0]
        if not first.endswith(":"):
            place = line.split(None, 5)
            major, _, minor = place[3].partition(":")
            dev, inode = os.makedev(int(major, 16), int(minor, 16)), int(place[4])
            counted = (dev, inode) not in files.deleted
            wanted = "Pss:" if inode == 0 or dev == shared_dev else "Anonymous:"
        elif counted and first == wanted:
            total += int(line.split()[1]) * 1024
    return total


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _in_sandbox(pids: list[int]) -> int:
    """What lies in the `/tmp` and `/dev/shm` that the command alone has."""
    outside = os.stat("/").st_dev
    for pid in pids:
        root = f"/proc/{pid}/root"
        try:
            if os.stat(root).st_dev != outside:  # all the others are in the same sandbox
                return _used_in(f"{root}/tmp") + _used_in(f"{root}/dev/shm")  # noqa: S108
        except OSError:
            continue
    return 0


def _used_in(path: str) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _memory_mounts() -> Iterator[str]:
    """Where a command without a sandbox can put files in memory."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            for line in file:
                _, path, kind, *_ = line.split()
                if kind in ("tmpfs", "ramfs") and os.access(path, os.W_OK):
                    yield path
    except (OSError, ValueError):
        return


def _machine() -> tuple[int, int]:
    """What the machine has left, swap too, and what its files in memory take."""
    found = {"MemAvailable": 0, "SwapFree": 0, "Shmem": 0}
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in found:
                    found[name] = int(rest.split()[0]) * 1024
                    if name == "Shmem":  # the last of the three
                        break
    except (OSError, ValueError, IndexError):
        pass
    return found["MemAvailable"] + found["SwapFree"], found["Shmem"]


def _dev_of_memfd() -> int:
    """Memory that is shared without a name lies on one device of the kernel."""
    try:
        handle = os.memfd_create("parley", os.MFD_CLOEXEC)
    except (OSError, AttributeError):
        return -1
    try:
        return os.fstat(handle).st_dev
    finally:
        os.close(handle)
