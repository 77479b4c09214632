"""The text of an answer from its pieces, however they were cut. Pure."""

from __future__ import annotations

import re
from typing import Final

from parley.backends.direct.events import MOST_TEXT
from parley.backends.direct.faults import FarAgent

__all__ = ["Letters"]

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Letters:
    """Holds back half a letter whose other half comes with the next piece, and counts."""

    def __init__(self, far: FarAgent) -> None:
        self._far = far
        self._half = ""
        self._left = MOST_TEXT

    def feed(self, piece: str) -> str:
        """What can be shown by now; raises `PlatformError` when it is more than an answer."""
        self._left -= len(piece)
        if self._left < 0:
            raise self._far.broken("sent more than any answer can be")
        text, self._half = self._half + piece, ""
        if text and _SURROGATE.search(text):
            if "\ud800" <= text[-1] <= "\udbff":
                text, self._half = text[:-1], text[-1]
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text

    def finish(self) -> str:
        """What was held back and never came."""
        half, self._half = self._half, ""
        return "\ufffd" if half else ""
