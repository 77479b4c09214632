"""Reading a file by its lines, and listing a folder. Of a huge file only what was asked is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import islice

from .beneath import Place, Refused, Root, open_folder, open_regular, shown

__all__ = ["is_binary", "read"]

_BLOCK = 256 * 1024
_LOOK = 8192
_COUNTED = 10_000_000
_FARTHEST = 250_000_000
_MOST_CHARACTERS = 16_000
_MOST_NAMES = 200_000


def read(root: Root, path: str, first_line: int, lines: int, column: int) -> str:
    """The lines that were asked for, and what there is after them."""
    with root.find(path) as place:
        if place.missing:
            raise Refused(f"There is no {shown(path)} in the workspace.")
        if place.name is None:
            return _list(place, first_line, lines)
        handle = open_regular(place.name, place.folder)
    with closing(_Scroll(handle)) as scroll:
        if is_binary(scroll.head()):
            raise Refused(f"{shown(path)} is not a text file.")
        return _read(scroll, first_line, lines, column)


def is_binary(start: bytes) -> bool:
    return b"\0" in start[:_LOOK]


class _Scroll:
    """A file read forwards, block by block."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.size = os.fstat(handle).st_size
        self.at = 0

    def close(self) -> None:
        os.close(self._handle)

    def head(self) -> bytes:
        return os.pread(self._handle, _LOOK, 0)

    def skip_lines(self, count: int) -> int:
        """Go to the start of a later line; returns how many lines were passed."""
        passed = 0
        while passed < count and (block := self._block()):
            found = block.count(b"\n")
            if passed + found < count:
                passed += found
                self.at += len(block)
            else:
                self.at += _end_of_line(block, count - passed)
                passed = count
            if self.at > _FARTHEST and passed < count:
                raise Refused(f"That line lies too far in a file of {self.size} bytes to be read.")
        return passed

    def take_line(self, longest: int) -> tuple[bytes, bool]:
        """The next line, or as much of it as `longest`; and whether it was all of it."""
        taken = bytearray()
        while len(taken) < longest and (block := self._block(longest - len(taken))):
            end = block.find(b"\n")
            taken += block if end < 0 else block[:end]
            self.at += len(block) if end < 0 else end + 1
            if end >= 0:
                return bytes(taken), True
        return bytes(taken), self.at >= self.size

    def rest(self) -> Iterator[bytes]:
        while block := self._block():
            self.at += len(block)
            yield block

    @property
    def ended(self) -> bool:
        return not self._block(1)

    def ends_a_line(self) -> bool:
        return self.at > 0 and os.pread(self._handle, 1, self.at - 1) == b"\n"

    def _block(self, size: int = _BLOCK) -> bytes:
        return os.pread(self._handle, min(size, _BLOCK), self.at)


class _Page:
    """What is shown: so many characters and no more."""

    def __init__(self) -> None:
        self.room = _MOST_CHARACTERS

    def fits(self, line: str) -> bool:
        return len(line) < self.room

    def put(self, line: str) -> str:
        self.room -= len(line) + 1
        return line


def _read(scroll: _Scroll, first_line: int, lines: int, column: int) -> str:
    passed = scroll.skip_lines(first_line - 1)
    if scroll.ended:
        if scroll.size == 0:
            return "(the file is empty)"
        if passed < first_line - 1 or scroll.ends_a_line():
            count = passed + (0 if scroll.ends_a_line() else 1)
            return f"(the file has only {_lines(count)})"
    page, number = _Page(), first_line
    out: list[str] = []
    while len(out) < lines and not scroll.ended:
        start = scroll.at
        begin = column if number == first_line else 1
        raw, whole = scroll.take_line(4 * (_MOST_CHARACTERS + begin) + 8)
        text = _text(raw, first=start == 0)[begin - 1 :]
        if not page.fits(text) and out:
            scroll.at = start
            break
        if not page.fits(text) or not whole:
            shown_part = page.put(text[: page.room - 1])
            goes_on = begin + len(shown_part)
            note = f"… (line {number} goes on: first_line={number}, column={goes_on})"
            return "\n".join([*out, shown_part, note])
        out.append(page.put(text))
        number += 1
    return "\n".join([*out, *_left(scroll, number)])


def _left(scroll: _Scroll, number: int) -> list[str]:
    """What comes after the page."""
    if scroll.ended:
        return []
    if scroll.size > _COUNTED:
        return [f"… (more from first_line={number} on; the file has {scroll.size} bytes)"]
    last, count = b"", 0
    for block in scroll.rest():
        count += block.count(b"\n")
        last = block
    count += 0 if last.endswith(b"\n") else 1
    return [f"… ({count} more {'line' if count == 1 else 'lines'})"]


def _end_of_line(block: bytes, count: int) -> int:
    """Where in the block the line after `count` line ends begins."""
    at = 0
    for _ in range(count):
        at = block.index(b"\n", at) + 1
    return at


def _text(raw: bytes, *, first: bool) -> str:
    if first:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    text = raw.removesuffix(b"\r").decode("utf-8", "replace")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _lines(count: int) -> str:
    return f"{count} {'line' if count == 1 else 'lines'}"


def _list(place: Place, first_line: int, lines: int) -> str:
    folder = open_folder(".", place.folder)
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                shown(entry.name) + ("/" if entry.is_dir(follow_symlinks=False) else "")
                for entry in islice(entries, _MOST_NAMES)
            )
    finally:
        os.close(folder)
    if not names:
        return "(the folder is empty)"
    page, out = _Page(), []
    for name in names[first_line - 1 : first_line - 1 + lines]:
        if not page.fits(name):
            break
        out.append(page.put(name))
    left = len(names) - (first_line - 1) - len(out)
    return "\n".join([*out, *([f"… ({left} more)"] if left > 0 else [])]) or (
        f"(the folder has only {len(names)} {'entry' if len(names) == 1 else 'entries'})"
    )
