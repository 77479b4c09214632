"""Reads the reply's text out of a JSON answer while it is still being written."""

from __future__ import annotations

__all__ = ["REPLY", "ReplyReader"]

REPLY = "reply"

_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_HIGH, _LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)


class ReplyReader:
    """Feed it `{"tool": "reply", "args": {"text": …}}` in any pieces, take the text as it comes.

    It gives nothing of any other tool's call, and nothing before the tool is known.
    """

    def __init__(self) -> None:
        self._path: list[str | None] = []  # the key we are at, per open object; None in an array
        self._string: _StringDecoder | None = None
        self._is_key = False
        self._tool: str | None = None
        self._tool_pieces: list[str] = []
        self._held: list[str] = []  # text that came before the tool's name

    def feed(self, piece: str) -> str:
        """Return the text that `piece` adds."""
        added: list[str] = []
        position = 0
        while position < len(piece):
            if self._string is None:
                self._outside(piece[position])
                position += 1
                continue
            text, position = self._string.take(piece, position)
            self._inside(text, added)
            if self._string.ended:
                self._close_string()
        if self._tool is None:
            self._held += added
            return ""
        if self._tool != REPLY:
            return ""
        held, self._held = self._held, []
        return "".join(held + added)

    def _outside(self, character: str) -> None:
        if character == '"':
            self._string = _StringDecoder()
            if self._is_key:
                self._path[-1] = ""
        elif character == "{":
            self._path.append("")
            self._is_key = True
        elif character == "[":
            self._path.append(None)
            self._is_key = False
        elif character in "}]" and self._path:
            self._path.pop()
            self._is_key = False
        elif character == ",":
            self._is_key = bool(self._path) and self._path[-1] is not None
        elif character == ":":
            self._is_key = False

    def _inside(self, text: str, added: list[str]) -> None:
        if self._is_key:
            key = self._path[-1]
            self._path[-1] = (key or "") + text
        elif self._path == ["args", "text"]:
            added.append(text)
        elif self._path == ["tool"]:
            self._tool_pieces.append(text)

    def _close_string(self) -> None:
        self._string = None
        if not self._is_key and self._path == ["tool"] and self._tool is None:
            self._tool = "".join(self._tool_pieces)


class _StringDecoder:
    """The inside of one JSON string, up to its closing quote. Half a pair becomes U+FFFD."""

    def __init__(self) -> None:
        self.ended = False
        self._escape = ""
        self._high = 0

    def take(self, piece: str, position: int) -> tuple[str, int]:
        """Decode from `position`; return the text and where the reading stopped."""
        out: list[str] = []
        while position < len(piece) and not self.ended:
            character = piece[position]
            if self._escape:
                position += 1
                self._go_on(character, out)
            elif character == "\\":
                position += 1
                self._escape = character
            elif character == '"':
                position += 1
                self._flush(out)
                self.ended = True
            else:
                end = _plain_end(piece, position)
                self._flush(out)
                out.append(piece[position:end])
                position = end
        return "".join(out), position

    def _go_on(self, character: str, out: list[str]) -> None:
        self._escape += character
        if self._escape[1] != "u":
            self._flush(out)
            out.append(_ESCAPES.get(character, character))
            self._escape = ""
        elif len(self._escape) == 6:
            digits, self._escape = self._escape[2:], ""
            self._add_unit(_as_unit(digits), out)

    def _add_unit(self, unit: int, out: list[str]) -> None:
        if self._high and unit in _LOW:
            out.append(chr(0x10000 + ((self._high - 0xD800) << 10) + (unit - 0xDC00)))
            self._high = 0
            return
        self._flush(out)
        if unit in _HIGH:
            self._high = unit
        else:
            out.append("\ufffd" if unit in _LOW else chr(unit))

    def _flush(self, out: list[str]) -> None:
        if self._high:
            out.append("\ufffd")
            self._high = 0


def _plain_end(piece: str, start: int) -> int:
    ends = [found for mark in '"\\' if (found := piece.find(mark, start)) >= 0]
    return min(ends, default=len(piece))


def _as_unit(digits: str) -> int:
    try:
        return int(digits, 16)
    except ValueError:
        return 0xFFFD
