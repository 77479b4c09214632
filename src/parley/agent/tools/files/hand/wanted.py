"""What a search is for."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LARGEST_FILE", "SKIPPED", "Search"]

LARGEST_FILE = 5_000_000
SKIPPED = frozenset({"node_modules", "__pycache__"})


class Search(NamedTuple):
    pattern: str
    glob: str
    plain: bool
    names_only: bool

    @property
    def lists(self) -> bool:
        """Whether it is for the files themselves, whatever is in them."""
        return self.names_only and not self.pattern
