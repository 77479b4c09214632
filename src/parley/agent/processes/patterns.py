"""Watching what a process prints: plain texts looked for line by line, reported now and then."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["LineWatch", "matches"]

SECONDS_BETWEEN = 10.0
MOST_REPORTS = 20
_MOST_LINES = 20
_LONGEST_LINE = 4096
_LONGEST_SHOWN = 400
_MOST_COUNTED = 10_000


def matches(pattern: str, line: str) -> bool:
    """Whether the line holds the pattern; `*` in it stands for anything. Linear in the line."""
    place = 0
    for part in pattern.split("*"):
        place = line.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


@dataclass(slots=True)
class LineWatch:
    """What was seen and not yet reported, and when it may be."""

    patterns: Sequence[str]
    position: int = 0
    reports: int = 0
    found: list[str] = field(default_factory=list)
    more: int = 0
    _may_at: float = 0.0
    _line: str = ""
    _skipping: bool = False
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    @property
    def is_over(self) -> bool:
        return self.reports > MOST_REPORTS

    def feed(self, start: int, data: bytes, *, last: bool = False) -> None:
        """New output; `start` beyond what we saw means that some is lost."""
        if start != self.position:
            self._line, self._skipping = "", True
            self._decoder.reset()
        self.position = start + len(data)
        text, newline, rest = (self._line + self._decoder.decode(data, last)).rpartition("\n")
        if newline:
            begin = 0
            if self._skipping:  # the rest of a line whose beginning is lost
                begin, self._skipping = text.find("\n") + 1 or len(text), False
            for line in _lines_with(self._literals, text, begin):
                if self.more >= _MOST_COUNTED:
                    break
                self._examine(line)
        self._line = rest[:_LONGEST_LINE]
        if last:
            if not self._skipping:
                self._examine(self._line)
            self._line, self._skipping = "", False

    def take(self, now: float) -> tuple[list[str], int] | None:
        """The lines to report now, and how many more there were; None when it is not yet time."""
        if not self.found or now < self._may_at or self.is_over:
            return None
        self.reports += 1
        self._may_at = now + SECONDS_BETWEEN
        taken = (self.found, self.more)
        self.found, self.more = [], 0
        return taken

    @property
    def _literals(self) -> set[str]:
        """Of each pattern the longest text that a line must hold."""
        return {max(each.split("*"), key=len) for each in self.patterns if "\n" not in each}

    def _examine(self, line: str) -> None:
        line = line[:_LONGEST_LINE].rstrip("\r")
        if not line or not any(matches(pattern, line) for pattern in self.patterns):
            return
        if len(self.found) < _MOST_LINES:
            self.found.append(line[:_LONGEST_SHOWN])
        else:
            self.more += 1


def _lines_with(literals: set[str], text: str, place: int) -> Iterator[str]:
    """The lines that hold one of these, in their order: a flood of others costs next to nothing."""
    nearest = {literal: text.find(literal, place) for literal in literals}
    while nearest := {literal: at for literal, at in nearest.items() if at >= 0}:
        hit = min(nearest.values())
        end = text.find("\n", hit)
        end = len(text) if end < 0 else end
        yield text[max(place, text.rfind("\n", place, hit) + 1) : end]
        place = end + 1
        for literal, at in nearest.items():
            if at < place:
                nearest[literal] = text.find(literal, place)
