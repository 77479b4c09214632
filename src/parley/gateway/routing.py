"""Which profile a message is for, and which conversation it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from parley.profiles import Profile
from parley.protocol import SessionSource
from parley.sessions.key import build_session_key

__all__ = ["Route", "Router"]


@dataclass(frozen=True, slots=True)
class Route:
    profile: Profile
    lane: str


class Router:
    """All messages of one gateway go to its one profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def route(self, source: SessionSource) -> Route:
        return Route(self._profile, build_session_key(source, profile=self._profile.name))
