"""Disk space that files take while a command runs, and why it must end when it is too much.

Every look asks the file system what it has left, which costs nothing; files are counted only when
so much is gone, or was written by the command, that a limit may be near. The total counts, whoever
wrote: so several commands at once stay within it together. The one that is ended is one that wrote;
when a command writes in a way that is not counted for it, all that run are ended a little later.
The keeper loads it, so it is of the standard library alone.
"""

# `pathlib` costs more to import than it saves here.
# ruff: noqa: PTH116, PTH123

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from parley.agent.processes.disk_usage import DiskUsage, count_usage, free_space
    from parley.agent.processes.memory_watch import open_files
else:  # the keeper has only the folder that these lie in
    from disk_usage import DiskUsage, count_usage, free_space
    from memory_watch import open_files

__all__ = ["DiskWatch"]

_MB = 1024 * 1024
_SMALLEST_STEP = _MB
_SMALLEST_STEP_OF_FILES = 100
_MISSING = 64 * _MB
_SLICE_SECONDS = 0.02
_REGULAR_SECONDS = 1.0
_SLOWEST_SECONDS = 60.0
_SOONEST = 0.01
# A count that takes long is not made again before it has paused so many times as long.
_REST = 20.0
_LONG_REST = 100.0
_REST_WHILE_IT_WRITES = 2.0
# Who wrote such a part of what is too much is ended at once.
_SHARE_OF_A_WRITER = 64
_SLACK_PART = 8
_SLACK_BYTES, _SLACK_FILES = 256 * _MB, 1000


class DiskWatch:
    """`look` says why the command must end, or None.

    `terms` are the limits, the folders, and what was known when the command began. In `scratch`
    are files of the command alone.
    """

    def __init__(self, terms: dict[str, Any], scratch: str | None) -> None:
        self._place: str = terms["workspace"]
        self._sessions: str | None = terms["sessions"]
        self._owner: str | None = terms["owner"]
        self._scratch = scratch
        self._total = _Limit(terms["workspace_bytes"], terms["used"], _SLACK_BYTES)
        self._person = _Limit(terms["person_bytes"], terms["used_by_owner"], _SLACK_BYTES)
        self._files = _Limit(terms["workspace_files"], terms["files"], _SLACK_FILES)
        self._used_then: int = terms["used"]
        self._shared_then: int = terms["used_in_workspace"]
        self._own_then: int = terms["counted_of_owner"]
        self._known: bool = terms["known"]
        self._free_then: int = terms["free"]
        self._free: int = terms["free"]
        self._files_free: int = terms["files_free"]
        self._written: int | None = 0
        self._written_before: int | None = 0
        self._next_quiet = self._soonest = 0.0
        self._next = time.monotonic() + _REGULAR_SECONDS
        self._latest = time.monotonic() + _SLOWEST_SECONDS
        self._suspicious = False
        self._began = 0.0
        self._usage = DiskUsage()
        self._counting: Iterator[None] | None = None

    @property
    def is_counting(self) -> bool:
        return self._counting is not None

    def look(self, pids: Callable[[], Iterable[int]]) -> str | None:
        now = time.monotonic()
        if self._counting is None:
            free, files_free = free_space(self._place)
            # What others remove meanwhile must not hide what is written here.
            self._free = max(self._free, free)
            self._files_free = max(self._files_free, files_free)
            if not self._is_due(now, free, files_free, pids):
                return None
            self._written_before = self._count_written(pids())
            self._free, self._files_free = free, files_free
            self._began, self._usage = now, DiskUsage()
            self._counting = count_usage(self._usage, self._place, self._sessions, self._scratch)
        for _ in self._counting:
            if time.monotonic() - now > _SLICE_SECONDS:
                return None
        self._counting = None
        reason = self._judge(list(pids()))
        done = time.monotonic()
        took = done - self._began
        self._soonest = done + max(_SOONEST, took * _REST_WHILE_IT_WRITES)
        self._next_quiet = done + took * _REST
        self._next = done + max(_REGULAR_SECONDS, took * _REST)
        self._latest = done + max(_SLOWEST_SECONDS, took * _LONG_REST)
        return reason

    def _is_due(
        self, now: float, free: int, files_free: int, pids: Callable[[], Iterable[int]]
    ) -> bool:
        room = min(self._total.room, self._person.room)
        step = max(_SMALLEST_STEP, room // 2)
        files_step = max(_SMALLEST_STEP_OF_FILES, self._files.room // 2)
        if self._free - free > step or self._files_free - files_free > files_step:
            if now < self._soonest:
                return False
            # Others may have written it all; then there is no hurry.
            return now >= self._next_quiet or self._count_written(pids()) != self._written
        if now < self._next:
            return False
        self._next = now + _REGULAR_SECONDS
        written = self._count_written(pids())
        if written is None or self._written is None:
            return True
        # Files without content are written by nobody, so now and then it is counted anyway.
        return self._suspicious or written - self._written > step or now >= self._latest

    # ── what it is ended for ──────────────────────────────────────────────────────────────────

    def _judge(self, pids: list[int]) -> str | None:
        usage, written = self._usage, self._count_written(pids)
        before, self._written = self._written_before, written
        held, hidden = _held(pids, usage.devices)
        gone = max(0, self._free_then - free_space(self._place)[0])
        wrote = gone if written is None else min(gone, written)
        used = usage.total + held
        own = usage.owners.get(self._owner or "", 0)
        if not self._known:  # nobody had counted before the command began
            self._known = True
            self._used_then = max(0, used - wrote)
            self._shared_then, self._own_then = usage.workspace, own
            self._total.begin(self._used_then)
            self._person.begin(own)
            self._files.begin(usage.files)
        missing = wrote - (used - self._used_then)
        if hidden or not usage.sure:
            used += max(0, missing)
        self._suspicious = not usage.still or missing > _MISSING
        added = max(0, usage.workspace - self._shared_then)
        if written is not None:
            added = min(added, max(0, written - max(0, own - self._own_then)))
        by_person = own + usage.beside + held + added
        if self._total.is_past(used, before, written):
            told = f"the files of this agent took {_megabytes(used)} MB"
            return self._total.sentence(told, "workspace_mb", _megabytes(self._total.most))
        if self._person.is_past(by_person, before, written):
            told = (
                f"the files of this person's conversations and what the command added took "
                f"{_megabytes(by_person)} MB"
            )
            return self._person.sentence(told, "person_mb", _megabytes(self._person.most))
        if self._files.is_past(usage.files, before, written, bytes_each=_SHARE_OF_A_WRITER):
            told = f"this agent had {usage.files} files"
            return self._files.sentence(told, "workspace_files", self._files.most)
        return None

    def _count_written(self, pids: Iterable[int]) -> int | None:
        """What its processes have written by now, to whatever file; None where nobody tells."""
        if sys.platform != "linux":
            return None
        total = 0
        for pid in (os.getpid(), *pids):
            try:
                with open(f"/proc/{pid}/io", encoding="ascii") as file:
                    found = dict(line.split(": ") for line in file)
                total += max(int(found["wchar"]), int(found["write_bytes"]))
            except PermissionError:
                return None
            except (OSError, ValueError, KeyError):
                continue  # it ended
        # One that ends while we look is in the count of none for a moment.
        return max(total, self._written or 0)


class _Limit:
    """What may be used: so much, or no more than there was when that was more already."""

    def __init__(self, most: int, used: int, slack: int) -> None:
        self.most = most
        self._least = used
        self._slack = slack
        self._written_then: int | None = 0
        self._used = used

    def begin(self, used: int) -> None:
        self._least = used

    @property
    def allowed(self) -> int:
        return max(self.most, self._least)

    @property
    def room(self) -> int:
        return self.allowed - self._used

    def is_past(
        self, used: int, before: int | None, written: int | None, *, bytes_each: int = 1
    ) -> bool:
        """Whether it is used up, and this command is one of those that did it."""
        self._used = used
        too_much = used - self.allowed
        if too_much <= 0:
            self._least, self._written_then = min(self._least, used), before
            return False
        if written is None or self._written_then is None:
            return True
        if (written - self._written_then) * _SHARE_OF_A_WRITER >= too_much * bytes_each:
            return True
        return too_much > max(self.allowed // _SLACK_PART, self._slack)

    def sentence(self, told: str, setting: str, most: int) -> str:
        told = f"{told}, and terminal.{setting} allows {most}"
        if self.allowed > self.most:
            return (
                f"{told}: until there is room a command may remove files, and this one added some"
            )
        return f"{told}: remove files to make room"


def _megabytes(size: int) -> int:
    return -(-size // _MB)


def _held(pids: list[int], devices: set[int]) -> tuple[int, bool]:
    """What files take that have no name any more but are in use, and whether some may be unseen."""
    files = open_files(pids)
    mapped: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
                for line in file:
                    if line.endswith(" (deleted)\n"):
                        _add_mapped(pid, line, mapped)
        except PermissionError:
            files.hidden = True
        except (OSError, ValueError):
            continue  # it ended
    found = mapped | files.deleted
    return sum(size for (device, _), size in found.items() if device in devices), files.hidden


def _add_mapped(pid: int, line: str, mapped: dict[tuple[int, int], int]) -> None:
    """What root can see exactly; for others as much as is mapped."""
    place, _, _, device, inode, _ = line.split(None, 5)
    major, _, minor = device.partition(":")
    id = os.makedev(int(major, 16), int(minor, 16)), int(inode)
    try:
        size = os.stat(f"/proc/{pid}/map_files/{place}").st_blocks * 512
    except OSError:
        begin, _, end = place.partition("-")
        size = int(end, 16) - int(begin, 16)
    mapped[id] = max(size, mapped.get(id, 0))
