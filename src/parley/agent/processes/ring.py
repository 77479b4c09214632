"""Reading the end of an endless text while its keeper goes on writing it.

The file is a header of two counts and a ring of bytes. The first count is how much is written for
sure, the second how much will be when the write that is under way is done.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Piece", "read_ring"]

_HEADER = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes from `start` on, counted from the first that was ever printed."""

    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


def read_ring(path: Path, *, size: int, since: int = 0, last: int | None = None) -> Piece:
    """What is still there from `since` on, of it only the `last` bytes."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return Piece(0, b"")
    try:
        written, _ = _counts(file)
        start = max(since, written - size, 0)
        if last is not None:
            start = max(start, written - last)
        start = min(start, written)
        data = _read(file, start, written, size)
        _, claimed = _counts(file)
    finally:
        os.close(file)
    spoiled = max(0, claimed - size - start)  # overwritten while we read
    return Piece(start + min(spoiled, len(data)), data[spoiled:])


def _counts(file: int) -> tuple[int, int]:
    header = os.pread(file, _HEADER.size, 0)
    if len(header) < _HEADER.size:
        return 0, 0
    written, claimed = _HEADER.unpack(header)
    return written, claimed


def _read(file: int, start: int, end: int, size: int) -> bytes:
    place, length = start % size, end - start
    first = os.pread(file, min(length, size - place), _HEADER.size + place)
    if len(first) == length:
        return first
    return first + os.pread(file, length - len(first), _HEADER.size)
