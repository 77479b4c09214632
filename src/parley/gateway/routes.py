"""Whose messages on a shared account go to which profile, as `gateway.routes` says. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from parley.config.settings import RouteSettings
from parley.protocol import ParleyError, SessionSource

__all__ = ["RouteTable"]

# A route's conditions, the narrowest first, and where a source has what they speak of.
_CONDITIONS: Final = {
    "user": "user_id",
    "thread": "thread_id",
    "chat": "chat_id",
    "guild": "guild_id",
    "account": "account",
    "platform": "platform",
}


class RouteTable:
    """The most specific route wins: the one with the narrowest condition, then the next narrowest.

    Among equals it is the first. Routes with the same conditions are looked up together, so the
    work for a message grows with their kinds, of which there are 63, and not with their number.
    """

    def __init__(self, routes: Sequence[RouteSettings], *, served: Collection[str]) -> None:
        kinds: dict[tuple[bool, ...], _Kind] = {}
        for number, route in enumerate(routes, start=1):
            _check(route, number, served)
            present = tuple(getattr(route, name) is not None for name in _CONDITIONS)
            kind = kinds.setdefault(present, _Kind.of(present))
            kind.add(route, number)
        self._kinds = [kinds[present] for present in sorted(kinds, reverse=True)]

    def match(self, source: SessionSource) -> str | None:
        """The profile a route gives this source to; None when no route speaks of it."""
        for kind in self._kinds:
            profile = kind.match(source)
            if profile is not None:
                return profile
        return None


class _Kind(NamedTuple):
    """The routes that have the same conditions, by what they ask for."""

    names: tuple[str, ...]
    readers: tuple[attrgetter[Any], ...]
    routes: dict[Any, tuple[int, str]]

    @classmethod
    def of(cls, present: tuple[bool, ...]) -> _Kind:
        names = tuple(name for name, here in zip(_CONDITIONS, present, strict=True) if here)
        fields = [_CONDITIONS[name] for name in names]
        readers = [attrgetter(*fields)]
        if names[0] == "user":
            readers.append(attrgetter("user_id_alt", *fields[1:]))
        return cls(names, tuple(readers), {})

    def add(self, route: RouteSettings, number: int) -> None:
        asked = attrgetter(*self.names)(route)
        self.routes.setdefault(asked, (number, route.profile))

    def match(self, source: SessionSource) -> str | None:
        found = [
            route for read in self.readers if (route := self.routes.get(read(source))) is not None
        ]
        return min(found)[1] if found else None


def _check(route: RouteSettings, number: int, served: Collection[str]) -> None:
    if all(getattr(route, name) is None for name in _CONDITIONS):
        raise ParleyError(
            f"Route {number} in `gateway.routes` has no condition and would match every message; "
            f"give it one, such as `platform`, or remove it: the default profile takes the rest."
        )
    if route.platform is not None and route.platform != route.platform.lower():
        raise ParleyError(
            f"Route {number} in `gateway.routes` names the platform `{route.platform}`; "
            f"platforms are written small: `{route.platform.lower()}`."
        )
    if route.profile not in served:
        raise ParleyError(
            f"Route {number} in `gateway.routes` goes to the profile `{route.profile}`, which is "
            "not served: make it (`parley profile create`), see that `gateway.profiles` is empty "
            "or names it, and that `gateway.multiplex_profiles` is on; or remove the route."
        )
