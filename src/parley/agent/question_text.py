"""Text of a question to a person: what is shown reads back to exactly what will be done.

A command is shown as it is, with these exceptions: what a reader could miss or mistake is written
as a mark, `⟨U+202E⟩` or `⟨TAB⟩`, and so is `⟨` itself. A line break is a line break, and the lines
of a block are numbered. A row that begins with `+` goes on from the row above, so nothing stands
beyond the edge of a screen. Arguments of a tool are shown as JSON.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from parley.agent.foreign import in_code, is_unseen, shown_exactly

__all__ = [
    "MOST_SHOWN",
    "add_text",
    "describe_call",
    "describe_text",
    "fits_inline",
    "mark_again",
    "mark_unseen",
    "question_lines",
    "render_question",
    "shown_name",
]

MOST_SHOWN: Final = 20_000
"""What takes more characters to show is not asked about, and not done."""

_OPEN, _CLOSE = "⟨", "⟩"
_NAMES: Final = {"\t": "TAB", "\r": "CR", "\x1b": "ESC", " ": "SPACE"}
_LONGEST_INLINE: Final = 200
_WIDTH: Final = 68
_MOST_ON_ONE: Final = 3
"""So many marks may stand on one letter; more would cover what is beside it."""
_BARE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_TURNED: Final = frozenset({"R", "AL", "AN"})
_ORDERED: Final = re.compile(r"[<>|&;$=/\\0-9]")


def render_question(what: str, reasons: Sequence[str] = (), once: str = "") -> str:
    """The whole question. `reasons`: why it is asked. `once`: why a yes holds for one call only."""
    sentence, break_, block = what.partition("\n")
    paragraphs = [f"May I {sentence}?{break_}{block}"]
    paragraphs += [f"Why: {mark_unseen(reason)}" for reason in reasons]
    if once:
        paragraphs.append(f"It is asked each time: {once}.")
    return "\n\n".join(paragraphs)


def describe_text(lead: str, text: str, note: str = "") -> str:
    """What is done with a text: `lead` is a verb such as "run"; a long text is a block."""
    end = f" ({note})" if note else ""
    if fits_inline(text):
        return f"{lead} {in_code(mark_unseen(text))}{end}"
    count = text.count("\n") + 1
    this = f"these {count} lines" if count > 1 else "this line"
    return f"{lead} {this}{end}{_block(lambda also: _numbered(text, also), text)}"


def describe_call(lead: str, arguments: Mapping[str, Any]) -> str:
    """What a tool is used with, as JSON; text of several lines is shown as such."""
    written = _json(dict(arguments))
    if fits_inline(written) and not any(map(_has_lines, arguments.values())):
        return f"{lead} with {in_code(mark_unseen(written))}"

    def rows(also: str) -> Iterator[str]:
        for name, value in arguments.items():
            key = name if _BARE_KEY.fullmatch(name) else _json(name)
            if _has_lines(value):
                yield from _wrapped(f"{key}, {value.count(chr(10)) + 1} lines:", also, "", "+ ")
                yield from _numbered(value, also)
            else:
                yield from _wrapped(f"{key} = {_json(value)}", also, "", "+ ")

    return f"{lead} with these arguments{_block(rows, written)}"


def add_text(what: str, label: str, text: str) -> str:
    """The same with another text that belongs to it, below."""
    if fits_inline(text):
        return f"{what}\n\n{label}: {in_code(mark_unseen(text))}"
    return f"{what}\n\n{label}:{_block(lambda also: _numbered(text, also), text)}"


def question_lines(what: str, note: str) -> str:
    """The same as an entry of a list."""
    sentence, _, block = what.partition("\n")
    return f"{sentence} ({note})" + (f"\n{block}\n" if block else "")


def shown_name(name: str) -> str:
    """A name from elsewhere in a sentence: code where that shows all of it, else JSON."""
    if fits_inline(name):
        return in_code(mark_unseen(name))
    return in_code(mark_unseen(_json(name)).replace("  ", f" {_mark(' ')}"))


def mark_unseen(text: str) -> str:
    """On one line, with a mark for all that a reader could miss or mistake."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_units(text))


def mark_again(line: str) -> str:
    """A line of a question that was rendered elsewhere: its own marks stay as they are."""
    return _OPEN.join(mark_unseen(piece) for piece in line.split(_OPEN))


def fits_inline(text: str) -> bool:
    """Whether a code span shows it all: HTML joins spaces, and a backtick may pass for its end."""
    if not text or len(text) > _LONGEST_INLINE or text != text.strip(" "):
        return False
    return not any(each in text for each in ("\n", "`", "  "))


# ── blocks ────────────────────────────────────────────────────────────────────────────────────


def _has_lines(value: object) -> bool:
    return isinstance(value, str) and "\n" in value


def _block(rows: Callable[[str], Iterator[str]], text: str) -> str:
    shown = ["", "", "```", *rows(""), "```"]
    turned = "".join({each for each in text if unicodedata.bidirectional(each) in _TURNED})
    if turned and _ORDERED.search(text):
        # Clients draw these letters, and the signs between them, in an order of their own.
        same = "The same, with the letters that run from right to left written out:"
        shown += ["", same, "", "```", *rows(turned), "```"]
    return "\n".join(shown)


def _numbered(text: str, also: str) -> Iterator[str]:
    lines = text.split("\n")
    width = len(str(len(lines)))
    for number, line in enumerate(lines, start=1):
        yield from _wrapped(line, also, f"{number:>{width}} | ", f"{'':>{width}} + ")


def _wrapped(line: str, also: str, first: str, more: str) -> Iterator[str]:
    """Rows that no screen needs to wrap; a space at the end of one is marked."""
    lead, row, used = first, "", 0
    for unit in _units(line, also):
        size = _columns(unit)
        if used and used + size > _WIDTH:
            yield lead + _ended(row)
            lead, row, used = more, "", 0
        row += unit
        used += size
    yield (lead + _ended(row)).rstrip(" ")


def _ended(row: str) -> str:
    return f"{row[:-1]}{_mark(' ')}" if row.endswith(" ") else row


def _columns(unit: str) -> int:
    if unit.isascii():
        return len(unit)
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in unit)


def _json(value: object) -> str:
    return shown_exactly(json.dumps(value, ensure_ascii=False, default=str))


# ── characters ────────────────────────────────────────────────────────────────────────────────


def _units(text: str, also: str = "") -> Iterator[str]:
    """The characters as they are shown, each with what stands on it."""
    unit, stacked = "", 0
    for each in text:
        shown = each
        if each.isascii() and each.isprintable():
            stacked = 0
        else:
            on = unicodedata.category(each).startswith("M")
            stacked = stacked + 1 if on else 0
            bare = not unit or unit.endswith(_CLOSE) or stacked > _MOST_ON_ONE
            if each in also or (on and bare) or _is_mistakable(each, unit):
                shown = _mark(each)
            elif on:
                unit += each
                continue
        if unit:
            yield unit
        unit = shown
    if unit:
        yield unit


def _is_mistakable(character: str, before: str) -> bool:
    """Whether it is not seen, or looks like another character, alone or after those before."""
    if character == _OPEN or is_unseen(character):
        return True
    joined = before + character
    return unicodedata.normalize("NFC", joined) != joined


def _mark(character: str) -> str:
    return f"{_OPEN}{_NAMES.get(character) or f'U+{ord(character):04X}'}{_CLOSE}"
