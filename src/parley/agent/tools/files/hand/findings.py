"""What a search found, within bounds: so many lines, so long, so many characters in all."""

from __future__ import annotations

from .beneath import shown

__all__ = ["MOST_FINDINGS", "Findings"]

MOST_FINDINGS = 200
_MOST_CHARACTERS = 16_000
_LONGEST_LINE = 300
_BEFORE = 80


class Findings:
    """`full` once no more is taken; `stopped` when time was up."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._characters = 0
        self.full = False
        self.stopped = False

    def add_name(self, path: str) -> None:
        self._add(shown(path))

    def add_line(self, path: str, number: int, line: str, start: int) -> None:
        """A line and where in it the match begins, in characters."""
        self._add(f"{shown(path)}:{number}: {_around(line, start)}")

    def text(self, seconds: float) -> str:
        if self.stopped:
            note = f"… (stopped after {seconds:.0f} s: narrow the path or glob)"
        elif self.full:
            note = "… (there is more: narrow the pattern, path or glob)"
        else:
            note = "" if self._lines else "(nothing found)"
        return "\n".join([*self._lines, *([note] if note else [])])

    def _add(self, line: str) -> None:
        if len(self._lines) >= MOST_FINDINGS or self._characters + len(line) > _MOST_CHARACTERS:
            self.full = True
            return
        self._lines.append(line)
        self._characters += len(line) + 1


def _around(line: str, start: int) -> str:
    line = line.replace("\0", "\N{REPLACEMENT CHARACTER}")
    begin = max(0, start - _BEFORE) if len(line) > _LONGEST_LINE else 0
    part = line[begin : begin + _LONGEST_LINE]
    return f"{'…' if begin else ''}{part}{'…' if begin + len(part) < len(line) else ''}"
