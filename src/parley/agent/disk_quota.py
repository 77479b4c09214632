"""Disk quota of a profile: how much its files take, and how much more may be written.

Counting all files takes a moment, so a count is used for as long as the file system shows that
there is room enough all the same. Everything here blocks.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from parley.agent.processes.disk_usage import DiskUsage
    from parley.config.hands import TerminalSettings

__all__ = ["DiskLimits", "DiskQuota", "DiskRoom", "quota_for"]

_log = logging.getLogger("parley.disk")

_MB = 1024 * 1024
_BLOCK = 4096
_TIGHT_BYTES, _TIGHT_FILES, _TIGHT_PART = 64 * _MB, 1000, 16
_KEPT_SECONDS = 60.0
_KEPT_TIMES = 100.0
_QUICK_SECONDS = 0.5
_REST = 4.0
_LONGEST_WAIT = 2.0
_SLICE_SECONDS = 0.005
_PAUSE_SECONDS = 0.0005


class DiskLimits(NamedTuple):
    """The settings `terminal.workspace_mb`, `person_mb` and `workspace_files`, in bytes."""

    workspace: int
    person: int
    files: int

    @classmethod
    def from_settings(cls, settings: TerminalSettings) -> DiskLimits:
        return cls(settings.workspace_mb * _MB, settings.person_mb * _MB, settings.workspace_files)


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """What is used by now, of the whole profile and of one owner, and so what is left.

    `since` is what the file system lost since the count: it is taken to be used, here, by them.
    Nothing is `known` while a first count is under way.
    """

    limits: DiskLimits
    used: int
    used_in_workspace: int
    used_by_owner: int
    files: int
    free: int
    files_free: int
    since: int = 0
    known: bool = True

    @property
    def left(self) -> int:
        return self.limits.workspace - self.used

    @property
    def left_for_owner(self) -> int:
        return self.limits.person - self.used_by_owner

    def is_tight(self, needed: int = 0) -> bool:
        """Whether there is so little left that it must be known exactly."""
        left = min(self.left, self.left_for_owner) - needed
        return left < _TIGHT_BYTES or self.limits.files - self.files < _TIGHT_FILES

    def is_nearly_full(self) -> bool:
        limits = self.limits
        return (
            self.left < min(_TIGHT_BYTES, limits.workspace // _TIGHT_PART)
            or self.left_for_owner < min(_TIGHT_BYTES, limits.person // _TIGHT_PART)
            or limits.files - self.files < min(_TIGHT_FILES, limits.files // _TIGHT_PART)
        )

    def for_files(self) -> tuple[int, str, int, str, int, str]:
        """For `parley.agent.tools.files.hand.room`."""
        no, then = "There is no room for it", "Remove files first."
        return (
            self.left,
            f"{no}: {self._told_of_all()}. {then}",
            self.left_for_owner,
            f"{no}: {self._told_of_owner()}. {then}",
            self.limits.files - self.files,
            f"{no}: {self._told_of_files()}. {then}",
        )

    def refuse(self, size: int) -> str | None:
        """Why the conversation may not keep a new file of this size."""
        left, full, left_for_owner, full_for_owner, files_left, too_many = self.for_files()
        size = -(-size // _BLOCK) * _BLOCK
        if size > left:
            return full
        if size > left_for_owner:
            return full_for_owner
        return too_many if files_left < 1 else None

    def for_command(self, file_bytes: int) -> tuple[int, str]:
        """The largest file that a command may write, and what it is told when it fails."""
        if not self.is_nearly_full():
            return file_bytes, ""
        left = max(0, min(self.left, self.left_for_owner))
        if left < file_bytes:
            why = self._told_of_owner() if self.left_for_owner < self.left else self._told_of_all()
            may = f"write files of {left // _MB} MB" if left >= _MB else "remove files only"
        else:
            why, may = self._told_of_files(), "add a few files only"
        return min(left, file_bytes), f"\n[{why}: until there is room, a command may {may}.]\n"

    def terms(self) -> dict[str, Any]:
        """For `parley.agent.processes.disk_watch`."""
        return {
            "workspace_bytes": self.limits.workspace,
            "person_bytes": self.limits.person,
            "workspace_files": self.limits.files,
            "known": self.known,
            "used": self.used,
            "used_in_workspace": self.used_in_workspace,
            "used_by_owner": self.used_by_owner,
            "counted_of_owner": self.used_by_owner - self.since,
            "files": self.files,
            "free": self.free,
            "files_free": self.files_free,
        }

    def _told_of_all(self) -> str:
        return (
            f"the files of this agent take {_megabytes(self.used)} MB, and "
            f"terminal.workspace_mb allows {_megabytes(self.limits.workspace)}"
        )

    def _told_of_owner(self) -> str:
        return (
            f"the files of this person's conversations take {_megabytes(self.used_by_owner)} MB, "
            f"and terminal.person_mb allows {_megabytes(self.limits.person)}"
        )

    def _told_of_files(self) -> str:
        return (
            f"this agent has {self.files} files, and terminal.workspace_files allows "
            f"{self.limits.files}"
        )


class DiskQuota:
    """Of one workspace, and of the `sessions` in which each owner has a folder."""

    def __init__(self, workspace: Path, sessions: Path | None, limits: DiskLimits) -> None:
        self.limits = limits
        self._workspace = workspace
        self._sessions = sessions
        self._lock = threading.Lock()
        self._count: _Count | None = None
        self._counted = threading.Event()
        self._is_counting = False

    def look(self, private: Path | None = None, *, needed: int = 0) -> DiskRoom:
        """What is left for the owner of this session folder.

        At least that is right, unless others write at this moment; where it is tight for what is
        `needed`, files are counted. A count that takes long is not waited for.
        """
        owner = private.parent.name if private is not None else ""
        count = self._count
        if count is not None:
            room = self._room(count, owner)
            age = time.monotonic() - count.at
            if not room.is_tight(needed):
                if age < count.good_for:
                    return room
            elif age < count.rest and room.free <= count.free:  # nothing was removed since
                return room
        self._recount()
        # What others wrote to the disk while it was counted is nobody's here.
        return self._room(self._count, owner, exact=self._count is not count)

    def terms(self, room: DiskRoom, private: Path | None) -> dict[str, Any]:
        """What the keeper of a command is told."""
        return room.terms() | {
            "workspace": os.path.realpath(self._workspace),
            "sessions": None if self._sessions is None else os.path.realpath(self._sessions),
            "owner": private.parent.name if private is not None else None,
        }

    def refuse_copy(self, folder: Path, size: int) -> str | None:
        """Why a copy of a file may not be kept in a folder beside those that are counted."""
        from parley.agent.processes.disk_usage import DiskUsage, count_usage

        kept = DiskUsage()
        for _ in count_usage(kept, os.path.realpath(folder)):
            pass
        room = self.look(needed=size + kept.total)
        if size + kept.total <= room.left:
            return None
        return (
            f"There is no room for it: the files of this agent take {_megabytes(room.used)} MB, "
            f"those that were sent {_megabytes(kept.total)}, and terminal.workspace_mb allows "
            f"{_megabytes(self.limits.workspace)}."
        )

    def _room(self, count: _Count | None, owner: str, *, exact: bool = False) -> DiskRoom:
        from parley.agent.processes.disk_usage import free_space

        free, files_free = free_space(os.path.realpath(self._workspace))
        if count is None:  # a first count that takes long; the keeper of a command counts too
            return DiskRoom(self.limits, 0, 0, 0, 0, free, files_free, known=False)
        usage = count.usage
        # Whoever wrote it since: it may have been written here.
        more, more_files = max(0, count.free - free), max(0, count.files_free - files_free)
        if exact:
            more = more_files = 0
        return DiskRoom(
            self.limits,
            used=usage.total + more,
            used_in_workspace=usage.workspace,
            used_by_owner=usage.owners.get(owner, 0) + more,
            files=usage.files + more_files,
            free=free,
            files_free=files_free,
            since=more,
        )

    def _recount(self) -> None:
        """Begin a count, or wait for the one that is under way."""
        with self._lock:
            if not self._is_counting:
                self._is_counting, self._counted = True, threading.Event()
                threading.Thread(target=self._do_count, name="count files", daemon=True).start()
            counted = self._counted
        counted.wait(_LONGEST_WAIT)

    def _do_count(self) -> None:
        from parley.agent.processes.disk_usage import DiskUsage, count_usage, free_space

        began = pause_at = time.monotonic()
        try:
            workspace = os.path.realpath(self._workspace)
            sessions = None if self._sessions is None else os.path.realpath(self._sessions)
            usage = DiskUsage()
            free, files_free = free_space(workspace)
            for _ in count_usage(usage, workspace, sessions):
                if time.monotonic() - pause_at > _SLICE_SECONDS:
                    time.sleep(_PAUSE_SECONDS)  # for those who answer people meanwhile
                    pause_at = time.monotonic()
            done = time.monotonic()
            self._count = _Count(usage, free, files_free, done, done - began)
        except OSError:
            _log.exception("files could not be counted")
        finally:
            with self._lock:
                self._is_counting = False
                self._counted.set()


class _Count(NamedTuple):
    usage: DiskUsage
    free: int
    files_free: int
    at: float
    took: float

    @property
    def rest(self) -> float:
        """One that took long is not made again at once, not even where room is tight."""
        return self.took * _REST if self.took > _QUICK_SECONDS else 0.0

    @property
    def good_for(self) -> float:
        """Others may free as much as is written here, which shows only when files are counted."""
        return max(_KEPT_SECONDS, self.took * _KEPT_TIMES)


@functools.lru_cache(maxsize=256)
def quota_for(workspace: Path, sessions: Path | None, limits: DiskLimits) -> DiskQuota:
    """The same for all who ask about the same folders, so that one count serves them all."""
    return DiskQuota(workspace, sessions, limits)


def _megabytes(size: int) -> int:
    return -(-size // _MB)
