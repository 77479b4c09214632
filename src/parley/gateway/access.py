"""Who may speak. Fails closed: a platform nobody opened refuses everyone."""

from __future__ import annotations

from parley.protocol import ParleyError, SessionSource

__all__ = ["Refused", "check_access"]


class Refused(ParleyError):
    """This sender may not speak to this agent."""


def check_access(source: SessionSource, *, vouched: bool) -> None:
    """Raise unless the surface itself vouches for every sender, as the owner's terminal does."""
    if not vouched:
        raise Refused(f"Nobody may speak to this agent on `{source.platform}` yet.")
