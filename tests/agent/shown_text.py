"""Reads a question back: the commands and arguments that a person was shown. For tests alone."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

__all__ = ["page_text", "read_arguments", "read_text"]

_MARK = re.compile("⟨(?:U\\+([0-9A-F]{4,6})|(TAB|CR|ESC|SPACE))⟩")
_NAMED = {"TAB": "\t", "CR": "\r", "ESC": "\x1b", "SPACE": " "}
_INLINE = re.compile("`([^`]+)`")
_NUMBERED = re.compile(r" *(\d+) \|(?: (.*))?")
_MORE = re.compile(r" *\+ (.*)")
_LINES = re.compile(r"(.*), (\d+) lines:")


def read_text(what: str) -> str:
    """The text that `describe_text` shows."""
    rows = _rows(what)
    if rows is None:
        found = _INLINE.search(what)
        assert found is not None, what
        return _unmarked(found[1])
    return "\n".join(_numbered(_joined(rows)))


def read_arguments(what: str) -> dict[str, Any]:
    """The arguments that `describe_call` shows."""
    rows = _rows(what)
    if rows is None:
        *_, last = _INLINE.findall(what)
        read: dict[str, Any] = json.loads(_unmarked(last))
        return read
    lines = _joined(rows)
    found: dict[str, Any] = {}
    while lines:
        line = lines.pop(0)
        if (text := _LINES.fullmatch(line)) is not None:
            count = int(text[2])
            found[_key(text[1])] = "\n".join(_numbered(lines[:count]))
            del lines[:count]
        elif line.startswith('"'):
            key, end = json.JSONDecoder().raw_decode(_unmarked(line))
            found[key] = json.loads(_unmarked(line)[end:].removeprefix(" = "))
        else:
            key, _, value = line.partition(" = ")
            found[key] = json.loads(_unmarked(value))
    return found


def page_text(html: str) -> str:
    """The text of HTML as a client shows it, with what is code marked as such again."""
    page = _Page()
    page.feed(html)
    page.close()
    return page.shown


class _Page(HTMLParser):
    """HTML as a client shows it: blanks are joined, save in a block."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = ""
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._open.append(tag)
        self.shown += {"pre": "\n```\n", "code": "" if "pre" in self._open else "`"}.get(tag, "")

    def handle_endtag(self, tag: str) -> None:
        self._open.remove(tag)
        in_block = "pre" in self._open or tag == "pre"
        self.shown += {"pre": "\n```\n", "code": "" if in_block else "`"}.get(tag, "")

    def handle_data(self, data: str) -> None:
        if "pre" in self._open:
            self.shown += data.removesuffix("\n")
        else:
            self.shown += " ".join(f".{data}.".split())[1:-1]


def _rows(what: str) -> list[str] | None:
    """The rows of the first block; None where there is none."""
    _, fence, rest = what.partition("\n```\n")
    return rest.split("\n```")[0].split("\n") if fence else None


def _joined(rows: list[str]) -> list[str]:
    """The rows, with what goes on from the one above put behind it."""
    lines: list[str] = []
    for row in rows:
        more = _MORE.fullmatch(row)
        if more is None:
            lines.append(row)
        else:
            lines[-1] += more[1]
    return lines


def _numbered(lines: list[str]) -> list[str]:
    read = []
    for number, line in enumerate(lines, start=1):
        found = _NUMBERED.fullmatch(line)
        assert found is not None, line
        assert int(found[1]) == number
        read.append(_unmarked(found[2] or ""))
    return read


def _key(shown: str) -> str:
    plain = _unmarked(shown)
    return str(json.loads(plain)) if plain.startswith('"') else plain


def _unmarked(shown: str) -> str:
    return _MARK.sub(lambda m: chr(int(m[1], 16)) if m[1] else _NAMED[m[2]], shown)
