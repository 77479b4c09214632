"""Who may speak. Fails closed: a platform nobody opened refuses everyone."""

from __future__ import annotations

from collections.abc import Iterable

from parley.protocol import ParleyError, SessionSource

__all__ = ["Access", "Refused"]


class Refused(ParleyError):
    """This sender may not speak to this agent."""


class Access:
    """The platforms whose surface itself vouches for every sender, as the owner's terminal does."""

    def __init__(self, vouched: Iterable[str] = ()) -> None:
        self._vouched = frozenset(vouched)

    def check(self, source: SessionSource) -> None:
        if source.platform not in self._vouched:
            raise Refused(f"Nobody may speak to this agent on `{source.platform}` yet.")
