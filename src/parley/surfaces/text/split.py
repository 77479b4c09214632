"""Long text in parts that each stand alone: a code fence that is cut is closed and opened again."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["split_text"]

_SMALLEST: Final = 64
_OPENER: Final = re.compile(
    r"(?P<lead>(?:[ \t]*>)*[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?)"
    r"(?P<marker>`{3,}(?=[^`]*$)|~{3,})(?P<told>.*)$"
)
_CLOSER: Final = re.compile(r"(?P<lead>(?:[ \t]*>)*[ \t]*)(?P<marker>`{3,}|~{3,})[ \t]*$")
_SENTENCE: Final = re.compile(r"[.!?…][\"')\]*_]*\s+|[。！？]\s*")
_GAP: Final = re.compile(r"\s+")
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f")
_LONGEST_CHARACTER: Final = 32


@dataclass(frozen=True, slots=True)
class _Fence:
    """Code that began above: what closes it here, and what opens it again in the next part."""

    lead: str
    marker: str
    language: str
    cut: bool = False
    """It was opened again, without the lead."""

    @property
    def closer(self) -> str:
        return self.marker if self.cut else self.lead + self.marker

    @property
    def opener(self) -> str:
        return self.marker + self.language


@dataclass(frozen=True, slots=True)
class _Stop:
    """A place where a part may end."""

    shown: int
    line: int
    used: int
    fence: _Fence | None
    rank: int
    """0 right after a fence was opened, 1 inside one, 2 between lines, 3 between paragraphs."""


def split_text(text: str, *, limit: int) -> list[str]:
    """Parts of at most `limit` bytes of UTF-8, all of the text in order, none of them blank.

    They end between paragraphs where they can, else lines, sentences, words, characters.
    """
    if limit < _SMALLEST:
        raise ValueError(f"Parts are at least {_SMALLEST} bytes long.")
    lines = text.split("\n")
    parts = []
    line, column, fence = 0, 0, None
    while line < len(lines):
        if fence is not None and _fence_after(lines[line][column:], fence, limit) is None:
            line, column, fence = line + 1, 0, None
            continue
        part, line, column, fence = _next_part(lines, line, column, fence, limit)
        if part:
            parts.append(part)
    return parts


def _next_part(
    lines: list[str], line: int, column: int, fence: _Fence | None, limit: int
) -> tuple[str, int, int, _Fence | None]:
    shown = [] if fence is None else [fence.opener]
    used = sum(_size(each) + 1 for each in shown)
    stops: list[_Stop] = []
    while line < len(lines):
        words = lines[line][column : column + limit + 1]
        after = _fence_after(words, fence, limit)
        if fence is not None and after is None and (fence.cut or _size(words) > limit // 4):
            words = fence.closer
        total = used + _size(words)
        if total + _closing(after) > limit:
            if stops and stops[-1].used >= limit // 2:
                stop = _best(stops, limit)
                kept = _ended(shown[: stop.shown], stop.fence)
                return kept, stop.line, 0, _cut(stop.fence)
            room = limit - used - _closing(fence)
            taken, skipped = _piece(words, room, code=fence is not None)
            if taken:
                shown.append(words[:taken])
            return _ended(shown, fence), line, column + skipped, _cut(fence)
        shown.append(words)
        used = total + 1
        line, column = line + 1, 0
        rank = _rank(lines, line, before=fence, after=after)
        stops.append(_Stop(len(shown), line, used, after, rank))
        fence = after
    return _ended(shown, fence), line, 0, None


def _best(stops: list[_Stop], limit: int) -> _Stop:
    """The last of the best places in the second half, if there is one."""
    good = [stop for stop in stops if stop.rank > 0] or stops
    late = [stop for stop in good if stop.used >= limit // 2] or good
    return max(late, key=lambda stop: (stop.rank, stop.shown))


def _rank(lines: list[str], line: int, *, before: _Fence | None, after: _Fence | None) -> int:
    if after is not None:
        return 0 if before is None else 1
    following = lines[line] if line < len(lines) else ""
    ends = before is not None or not lines[line - 1].strip()
    begins = not following.strip() or following.startswith("#")
    return 3 if ends or begins or _OPENER.match(following) else 2


def _ended(shown: list[str], fence: _Fence | None) -> str:
    """A part as it is sent: its fence closed, without blank lines around it."""
    if fence is not None:
        shown = [*shown, fence.closer]
    start, end = 0, len(shown)
    while start < end and not shown[start].strip():
        start += 1
    while end > start and not shown[end - 1].strip():
        end -= 1
    return "\n".join(shown[start:end])


def _cut(fence: _Fence | None) -> _Fence | None:
    return None if fence is None else replace(fence, cut=True)


def _fence_after(words: str, fence: _Fence | None, limit: int) -> _Fence | None:
    if fence is None:
        return _opened(words, limit)
    found = _CLOSER.match(words)
    if found is None or not found["marker"].startswith(fence.marker):
        return fence
    deepest = max(4, len(fence.lead.expandtabs(4)) + 4)
    return fence if len(found["lead"].expandtabs(4)) >= deepest else None


def _opened(words: str, limit: int) -> _Fence | None:
    found = _OPENER.match(words)
    if found is None or _size(words) > limit // 4:
        return None
    told = found["told"].split()
    lead = re.sub(r"[^\s>]", " ", found["lead"])
    return _Fence(lead, found["marker"], told[0] if told else "")


def _closing(fence: _Fence | None) -> int:
    return 0 if fence is None else len(fence.closer) + 1


def _piece(words: str, room: int, *, code: bool) -> tuple[int, int]:
    """How much of a long line fits into `room` bytes, and where the next piece begins.

    The white space between them is left out, but not in code.
    """
    fits = len(words.encode(errors="replace")[:room].decode(errors="ignore"))
    for gaps in (_SENTENCE, _GAP):
        late = None
        for found in gaps.finditer(words, fits // 2, fits):
            late = found
        if late is not None:
            end = late.end() if code else late.start() + len(late[0].rstrip())
            return end, late.end()
    taken = _whole_characters(words, fits)
    return taken, taken


def _whole_characters(words: str, end: int) -> int:
    """At most `end`, and not inside of what is read as one character."""
    for place in range(end, max(0, end - _LONGEST_CHARACTER), -1):
        if place >= len(words) or not _is_inside(words, place):
            return place
    return end


def _is_inside(words: str, place: int) -> bool:
    before, after = words[place - 1], words[place]
    return (
        after in _JOINERS
        or before == "\u200d"
        or unicodedata.category(after) in {"Mn", "Me", "Mc"}
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or (_is_flag_half(after) and _flag_halves_before(words, place) % 2 == 1)
    )


def _flag_halves_before(words: str, place: int) -> int:
    start = place
    while start > 0 and _is_flag_half(words[start - 1]):
        start -= 1
    return place - start


def _is_flag_half(each: str) -> bool:
    return "\U0001f1e6" <= each <= "\U0001f1ff"


def _size(words: str) -> int:
    return len(words.encode(errors="replace"))
