"""Who owns a profile: the people whose word counts for everything it can do."""

from __future__ import annotations

from collections.abc import Iterable

from parley.protocol import SessionSource, person_of

__all__ = ["Owners"]

_AT_THIS_MACHINE = "terminal"


class Owners:
    """Those that the settings name, and whoever sits at this machine's own terminal."""

    def __init__(self, named: Iterable[str]) -> None:
        self._named = frozenset(named)

    def owns(self, source: SessionSource) -> bool:
        # The terminal's socket lets in nobody but the user that the gateway runs as.
        return source.platform == _AT_THIS_MACHINE or self.is_owner(person_of(source))

    def is_operator(self, person: str) -> bool:
        """The same of somebody known by name alone."""
        return person.startswith(f"{_AT_THIS_MACHINE}:") or self.is_owner(person)

    def is_owner(self, person: str) -> bool:
        return person in self._named
