"""Patterns for names of files, as shells know them: `*`, `?`, `[a-z]`, `{a,b}` and `**`."""

from __future__ import annotations

import re

from .beneath import Refused

__all__ = ["glob_pattern", "tidy_glob"]

_PART = re.compile(r"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|\{[^{}]*\}|.", re.DOTALL)
_FIXED = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_LONGEST = 200


def tidy_glob(glob: str | None) -> str:
    """The same pattern without what says nothing; none is for all names."""
    if not glob:
        return "*"
    if len(glob) > _LONGEST:
        raise Refused(f"`glob` is longer than {_LONGEST} characters.")
    while glob.startswith("./"):
        glob = glob[2:]
    return f"{glob}**" if glob.endswith("/") else glob


def glob_pattern(glob: str) -> re.Pattern[str]:
    """What a path must match whole. Without a slash the pattern is for the name alone."""
    anywhere = "" if "/" in glob else "(?:.*/)?"
    try:
        return re.compile(anywhere + _translate(glob.removeprefix("/")), re.DOTALL)
    except re.error:
        raise Refused(f"`{glob}` is no pattern for names; try one like *.py.") from None


def _translate(glob: str) -> str:
    return "".join(_piece(part) for part in _PART.findall(glob))


def _piece(part: str) -> str:
    if part in _FIXED:
        return _FIXED[part]
    if part.startswith("{") and len(part) > 1:
        return f"(?:{'|'.join(_translate(choice) for choice in part[1:-1].split(','))})"
    if part.startswith("[") and len(part) > 2:
        inner = part[1:-1].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
        return f"[^/{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]"
    return re.escape(part)
