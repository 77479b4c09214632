"""Words that belong to one profile, or to one session of it, and say so wherever they turn up."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["SECRET_KINDS", "Canary", "found_in"]

SECRET_KINDS: Final = frozenset({"key", "token", "password", "shellkey", "shelltoken"})
"""What stands in `.env` or in the shell to be used and never shown, not even to its owner."""

# Letters, digits and `_` alone: JSON, an address, Markdown and SQLite all leave them as they are.
_SHAPE = re.compile(r"canary_([a-z0-9]+)_([a-z]+)_([a-z0-9]+)_end")


class Canary(NamedTuple):
    profile: str
    kind: str
    session: str = "any"

    @property
    def word(self) -> str:
        return f"canary_{self.profile}_{self.kind}_{self.session}_end"

    @property
    def is_secret(self) -> bool:
        return self.kind in SECRET_KINDS


def found_in(text: str | bytes) -> set[Canary]:
    """Every canary in a text, in a file's bytes, or in anything that was written down."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return {Canary(*parts) for parts in _SHAPE.findall(text)}
