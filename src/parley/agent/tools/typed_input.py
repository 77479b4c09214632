"""Text that is typed into a running process, read as the command line that it may be. Pure.

A shell runs what is typed into it, so it is looked at like a command, together with what stands on
its line already. Other interpreters read code: the words that delete, mail or post are found in it
as in `python3 -c '…'`; code that makes up such a word on the way counts as hiding what it runs.
What a program of its own makes of its input, nobody can read here.
"""

from __future__ import annotations

import re
from typing import Final

from parley.agent.tools.risks import risks_of

__all__ = ["rest_of_line", "typed_reasons", "typed_risks"]

_LONGEST_LINE: Final = 20_000
# Keys that edit the line, complete it or fetch an earlier one: what is run is not what is typed.
_KEYS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ENDS_ONLY: Final = re.compile(r"[\x03\x04\r\n]*")
_RECALLS: Final = re.compile(
    r"(?:^|[\s;&|({])!(?![\s=(\"']|$)|(?:^|\n)\^|(?:^|[\n;&|({])\s*+(?:fc|history)\b"
)
_MADE_UP: Final = re.compile(
    r"\b(?:exec|getattr|compile|chr|unichr|b64decode|unhexlify|fromhex|fromCharCode|atob|Function)"
    r"\s*+\(|\b(?:__import__|importlib|__dict__|__getattribute__|instance_eval|public_send)\b"
    r"|\b(?:globals|locals|vars)\s*+\(\s*+\)|\[\s*+:\s*+:\s*+-1\s*+\]|\\x[0-9a-fA-F]{2}|\\u[0-9a-f]"
)


def typed_risks(command: str, before: str | None, text: str, *, pty: bool) -> frozenset[str]:
    """The safety triggers that `text` falls under, typed into what `command` began.

    `before` stands on the line already; None where that is not known.
    """
    if _ENDS_ONLY.fullmatch(text) and before == "":
        return frozenset()
    found = risks_of(_as_lines((before or "") + text)) | risks_of(command)
    if typed_reasons(before, text, pty=pty):
        found |= {"file-delete"}
    return found


def typed_reasons(before: str | None, text: str, *, pty: bool) -> tuple[str, ...]:
    """Why what is typed cannot be read, in sentences."""
    only_ends = _ENDS_ONLY.fullmatch(text) is not None
    if only_ends and before == "":
        return ()
    reasons = []
    if before is None:
        reasons.append("It is not known what was typed on this line before.")
    if not only_ends and (_KEYS.search(text) or (pty and "\t" in text)):
        reasons.append("It holds keys that change the line before it is run.")
    line = _as_lines((before or "") + text)
    if _RECALLS.search(line):
        reasons.append("A shell may run an earlier command for it.")
    if _MADE_UP.search(line):
        reasons.append("It makes up what it runs.")
    return tuple(reasons)


def rest_of_line(before: str | None, text: str) -> str | None:
    """What stands on the last line once `text` is typed; None where that is not known.

    A line goes on behind a backslash at its end.
    """
    lines = _as_lines((before or "") + text).split("\n")
    start = len(lines) - 1
    while start > 0 and _goes_on(lines[start - 1]):
        start -= 1
    rest = "\n".join(lines[start:])
    is_known = before is not None or start > 0
    return rest if is_known and len(rest) <= _LONGEST_LINE else None


def _as_lines(typed: str) -> str:
    return typed.replace("\r", "\n")  # on a terminal both end a line


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
