"""Text from elsewhere, made safe to print: nothing in it can steer the terminal. Pure."""

from __future__ import annotations

import re

__all__ = ["escaped", "one_line", "plain", "shown_question"]

# C0 without tab and newline, DEL, and C1: a terminal obeys all of these.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_RAW_IN_JSON = re.compile(r"[\x7f-\x9f]")


def plain(text: str) -> str:
    """The text without control characters, save for newlines and tabs."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n"))


def shown_question(text: str) -> str:
    """A question to decide on: what could not be seen in it is written out."""
    from parley.agent.question_text import mark_again

    return "\n".join(map(mark_again, text.split("\n")))


def one_line(text: str, *, longest: int) -> str:
    """The text in one line, cut with an ellipsis when it is too long."""
    flat = " ".join(plain(text).split())
    return flat if len(flat) <= longest else flat[: longest - 1].rstrip() + "…"


def escaped(json_text: str) -> str:
    """JSON that says the same and holds no control character as it stands."""
    return _RAW_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)
