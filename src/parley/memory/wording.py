"""How the words of a fact must be: one line, short, without anything that opens a door. Pure."""

from __future__ import annotations

import unicodedata
from typing import Final

from parley.memory.secrets import looks_secret
from parley.protocol import ParleyError

__all__ = ["LONGEST", "OUTSIDE_CONFIDENCE", "REFUSAL", "flat", "kind_named", "worded"]

LONGEST: Final = 500
OUTSIDE_CONFIDENCE: Final = 0.5
"""At most so sure is a fact that may come from what the agent read, and not from a person."""
_LONGEST_KIND: Final = 32
REFUSAL: Final = "That looks like a key or password; such things are not remembered."


def flat(text: str) -> str:
    """On one line, with single spaces, and without control characters."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    kept = "".join(each for each in line if unicodedata.category(each) not in {"Cc", "Cs"})
    return " ".join(kept.split())


def worded(text: str) -> str:
    """The words as they are remembered, or the sentence that says why they are not."""
    line = flat(text)
    if not line:
        raise ParleyError("There are no words to remember; say what it is.")
    if len(line) > LONGEST:
        raise ParleyError(
            f"A fact has at most {LONGEST} characters, and this has {len(line)}; say it shorter."
        )
    if looks_secret(line):
        raise ParleyError(REFUSAL)
    return line


def kind_named(name: str) -> str:
    """A kind by the name somebody gave it: small letters, one short line; `note` without one."""
    kind = flat(name).lower()
    if len(kind) > _LONGEST_KIND or looks_secret(kind):
        raise ParleyError(f"A kind is a word or two, at most {_LONGEST_KIND} characters.")
    return kind or "note"
