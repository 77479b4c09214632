"""Files of the audit log: appended to under a lock, repaired after a kill, bounded by retention.

`audit.jsonl` is written to; `audit-<number>.jsonl` are its older parts, named after their first
record; `head` notes the number and hash of the last record, so that a log that was cut off behind
that record is known to be too short.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from parley.audit.chain import GENESIS, LONGEST_LINE, AuditRecord, parse_record, seal_record

__all__ = [
    "CURRENT_NAME",
    "AuditFiles",
    "AuditLimits",
    "Head",
    "audit_lock",
    "old_parts",
    "parse_time",
    "read_head",
    "stamp",
]

CURRENT_NAME: Final = "audit.jsonl"
HEAD_NAME: Final = "head"
_PARTS: Final = 8
_SMALLEST_PART, _LARGEST_PART = 64 * 1024, 8 * 1024 * 1024
_TAIL: Final = 2 * LONGEST_LINE
_PATIENCE: Final = 5.0
_DAY: Final = 86_400.0

Fields = Mapping[str, Any]


class Head(NamedTuple):
    """The last record of a chain."""

    number: int
    hash: str


_START: Final = Head(0, GENESIS)


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """What is kept: so many bytes, and days; 0 days is no limit."""

    size: int
    days: int

    @property
    def part_size(self) -> int:
        return min(max(self.size // _PARTS, _SMALLEST_PART), _LARGEST_PART)

    @property
    def part_seconds(self) -> float:
        return max(self.days * _DAY / _PARTS, _DAY)


@dataclass(frozen=True, slots=True)
class _Tail:
    """Where the file that is written to ends, as it was left."""

    inode: int
    size: int
    head: Head
    first_number: int
    first_at: float


class AuditFiles:
    """The log of one home. Threads and processes may append at the same time."""

    def __init__(self, folder: Path, limits: Callable[[], AuditLimits]) -> None:
        self.folder = folder
        self._limits = limits
        self._guard = threading.Lock()
        self._file: int | None = None
        self._tail: _Tail | None = None

    def append(self, entries: Sequence[Fields], *, sync: bool = False) -> Head:
        """Add records; with `sync` they are on the disk when this returns. All or none of them."""
        with self._guard, audit_lock(self.folder):
            file = self._open()
            tail, said = self._find_tail(file)
            entries = [*said, *entries]
            dropped: list[Path] = []
            if self._is_full(tail):
                file, tail = self._rotate(file, tail)
                dropped, anchor = self._too_old(self._limits(), tail.head)
                entries = [*anchor, *entries]
            tail = self._write(file, tail, entries)
            self._note_head(tail.head)
            if sync or dropped:
                os.fdatasync(file)
            for part in dropped:
                part.unlink(missing_ok=True)
            self._tail = tail
            return tail.head

    def sync(self) -> None:
        """Put on the disk what was appended without."""
        with self._guard:
            if self._file is not None:
                os.fdatasync(self._file)

    def close(self) -> None:
        with self._guard:
            if self._file is not None:
                os.close(self._file)
                self._file = self._tail = None

    # ── the file ──

    def _open(self) -> int:
        """The file that is written to. Another process may have put a new one in its place."""
        path = self.folder / CURRENT_NAME
        if self._file is not None:
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_ino == os.fstat(self._file).st_ino:
                    return self._file
            os.close(self._file)
            self._file = self._tail = None
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags | os.O_NONBLOCK, 0o600)
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            os.close(self._file)
            self._file = None
            raise OSError(f"{path} is not an ordinary file")
        if stat.S_IMODE(found.st_mode) != 0o600:
            os.fchmod(self._file, 0o600)
        return self._file

    def _write(self, file: int, tail: _Tail, entries: Sequence[Fields]) -> _Tail:
        head, lines = tail.head, []
        for fields in entries:
            line, digest = seal_record(head.number + 1, head.hash, fields)
            head = Head(head.number + 1, digest)
            lines.append(line)
        content = memoryview(b"".join(lines))
        try:
            while content:
                content = content[os.write(file, content) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, tail.size)
            raise
        size = tail.size + sum(map(len, lines))
        if tail.first_number == 0 and entries:
            first_at = parse_time(str(entries[0]["at"]))
            tail = replace(tail, first_number=tail.head.number + 1, first_at=first_at)
        return replace(tail, size=size, head=head)

    def _note_head(self, head: Head) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self.folder / HEAD_NAME, flags, 0o600)
        try:
            os.pwrite(file, f"{head.number:020d} {head.hash}\n".encode(), 0)
        finally:
            os.close(file)

    # ── where the chain ends ──

    def _find_tail(self, file: int) -> tuple[_Tail, list[Fields]]:
        """Where to go on, and what has to be said first: that a line was torn, or is missing."""
        found = os.fstat(file)
        known = self._tail
        if known is not None and (known.inode, known.size) == (found.st_ino, found.st_size):
            return known, []
        size = found.st_size
        content = os.pread(file, _TAIL, max(0, size - _TAIL))
        torn = content[content.rfind(b"\n") + 1 :]
        last = self._last_of_old_parts() if len(torn) == size else _last_record(content)
        noted, end = read_head(self.folder), last.head
        said: list[Fields] = []
        if last.is_sound and (end.number > noted.number or end == noted):
            if torn:
                os.ftruncate(file, size - len(torn))
                size -= len(torn)
                said.append(_entry("audit.repaired", bytes=len(torn), sha256=_digest(torn)))
            if noted == _START != end:
                said.append(_entry("audit.repaired", head="The note of the head was missing."))
        else:
            # What the note tells of is not there any more: no kill does that. What is left stays.
            if torn:
                size += os.write(file, b"\n")
            said.append(_entry("audit.gap", found=end.number, noted=noted.number))
            end = noted if noted.number >= end.number else end
        first = parse_record(os.pread(file, LONGEST_LINE, 0).partition(b"\n")[0])
        if first is not None:
            return _Tail(found.st_ino, size, end, first.number, parse_time(first.at)), said
        return _Tail(found.st_ino, size, end, end.number if size else 0, time.time()), said

    def _last_of_old_parts(self) -> _Last:
        """The end of the chain where the file that is written to is new."""
        parts = old_parts(self.folder)
        return _last_record(_tail_of(parts[-1])) if parts else _Last(_START)

    # ── retention ──

    def _is_full(self, tail: _Tail) -> bool:
        age = time.time() - tail.first_at
        if tail.first_number == 0 or (tail.size < _SMALLEST_PART and age <= _DAY):
            return False  # whatever the settings say, which take a while to read
        limits = self._limits()
        return tail.size >= limits.part_size or (bool(limits.days) and age > limits.part_seconds)

    def _rotate(self, file: int, tail: _Tail) -> tuple[int, _Tail]:
        os.fdatasync(file)
        stem = f"audit-{tail.first_number:012d}"
        names = (f"{stem}{f'-{again}' if again else ''}.jsonl" for again in count())
        old = next(path for name in names if not os.path.lexists(path := self.folder / name))
        (self.folder / CURRENT_NAME).rename(old)
        file = self._open()
        return file, _Tail(os.fstat(file).st_ino, 0, tail.head, 0, 0.0)

    def _too_old(self, limits: AuditLimits, head: Head) -> tuple[list[Path], list[Fields]]:
        """The oldest parts that are kept no longer, and the record that says so."""
        parts = old_parts(self.folder)
        left = sum(part.stat().st_size for part in parts) + limits.part_size
        latest = time.time() - limits.days * _DAY if limits.days else 0.0
        dropped: list[Path] = []
        for part in parts:
            if left <= limits.size and (_last_record(_tail_of(part)).at or _mtime(part)) >= latest:
                break
            dropped.append(part)
            left -= part.stat().st_size
        if not dropped:
            return [], []
        kept = _first_record(parts[len(dropped)]) if len(dropped) < len(parts) else None
        through, digest = (kept.number - 1, kept.previous) if kept is not None else head
        until = stamp(_last_record(_tail_of(dropped[-1])).at)
        return dropped, [_entry("audit.anchor", through=through, hash=digest, until=until)]


@contextlib.contextmanager
def audit_lock(folder: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Keep every other writer out. Raises `TimeoutError` where one holds on for too long."""
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"{folder.parent} is gone")
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        _take_lock(descriptor, time.monotonic() + patience)
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int, until: float) -> None:
    pause = 0.001
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError("another process holds the lock of the audit log") from None
        else:
            return
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def old_parts(folder: Path) -> list[Path]:
    """The parts that are not written to any more, the oldest first."""
    return sorted(folder.glob("audit-*.jsonl"))


def read_head(folder: Path) -> Head:
    """What the note says of the last record; number 0 when there is none that can be read."""
    try:
        number, digest = (folder / HEAD_NAME).read_text(encoding="ascii").split()
        return Head(int(number), digest) if len(digest) == len(GENESIS) else _START
    except (OSError, ValueError):
        return _START


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def parse_time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


class _Last(NamedTuple):
    """The last record that fits its hash. `is_sound`: no line follows it that does not."""

    head: Head
    at: float = 0.0
    is_sound: bool = True


def _last_record(content: bytes) -> _Last:
    for behind, line in enumerate(reversed(content.split(b"\n")[:-1])):
        found = parse_record(line)
        if found is not None and found.intact:
            return _Last(Head(found.number, found.hash), parse_time(found.at), behind == 0)
    return _Last(_START, is_sound=False)


def _first_record(part: Path) -> AuditRecord | None:
    with part.open("rb") as file:
        return parse_record(file.readline(LONGEST_LINE).removesuffix(b"\n"))


def _tail_of(part: Path) -> bytes:
    with part.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return file.read()


def _mtime(part: Path) -> float:
    return part.stat().st_mtime


def _entry(kind: str, **data: object) -> Fields:
    return {"at": stamp(time.time()), "kind": kind, "pid": os.getpid(), "data": data}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
