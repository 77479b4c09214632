"""What a running turn has said so far, and how that is shown while it goes on. Pure."""

from __future__ import annotations

import re
from typing import Final

from parley.protocol import StepTaken, TextDelta, TextReset, ToolFinished, ToolStarted
from parley.surfaces.matrix.content import part_limit
from parley.surfaces.text.markup import well_formed
from parley.surfaces.text.split import split_text

__all__ = ["Progress"]

_KEPT: Final = 16_000
"""Only the first part of a long reply is shown; more than that need not be kept."""
_ROOM_FOR_MORE: Final = 300
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>&~|])")
_SENTENCE: Final = re.compile(r"[.!?:…。！？]\s|\n")


class Progress:
    """Text of settled steps, text of this step, and the tools that run."""

    def __init__(self) -> None:
        self._settled = ""
        self._current: list[str] = []
        self._size = 0
        self._tools: dict[str, str] = {}

    def take(self, event: object) -> bool:
        """Whether anything changed that is shown."""
        match event:
            case TextDelta(text=text) if text:
                return self._add(text)
            case TextReset():
                changed = bool(self._current)
                self._withdraw()
                return changed
            case StepTaken():
                self._settle()
                return False
            case ToolStarted(call=call):
                self._tools[call.id] = call.name
                return True
            case ToolFinished(call=call):
                return self._tools.pop(call.id, None) is not None
            case _:
                return False

    def _add(self, text: str) -> bool:
        if self._size >= _KEPT:
            return False
        self._current.append(text[:_KEPT])
        self._size += len(text)
        return True

    def _withdraw(self) -> None:
        self._current = []
        self._size = len(self._settled)

    def _settle(self) -> None:
        if self._current:
            self._settled = self.words + "\n\n"
            self._withdraw()

    @property
    def words(self) -> str:
        """All that was said."""
        if len(self._current) > 1:
            self._current = ["".join(self._current)]
        return well_formed((self._settled + "".join(self._current)).rstrip())

    @property
    def has_a_sentence(self) -> bool:
        return any(_SENTENCE.search(each) for each in self._current)

    def shown(self) -> str:
        """As a message that goes on; blank when there is nothing to show yet."""
        return self._with_last_line(self._tool_line() or "…")

    def stopped(self) -> str:
        """As a message that was ended; blank when nothing was said."""
        return self._with_last_line("— stopped") if self.words else ""

    def _tool_line(self) -> str:
        if not self._tools:
            return ""
        name = _SPECIAL.sub(r"\\\1", list(self._tools.values())[-1][:60])
        return f"*{name}…*"

    def _with_last_line(self, last: str) -> str:
        words = self.words
        if not words:
            return last if self._tools else ""
        limit = part_limit(words) - _ROOM_FOR_MORE
        first, *more = split_text(words, limit=limit) or [""]
        apart = last.startswith("*") or bool(more) or _ends_in_a_block(first)
        return f"{first}\n\n{last}" if apart else f"{first} {last}"


def _ends_in_a_block(text: str) -> bool:
    """Whether words put behind it would become part of code or of a table."""
    return text.rstrip().rsplit("\n", 1)[-1].lstrip().startswith(("```", "~~~", "|", "#"))
