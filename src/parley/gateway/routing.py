"""Which profile a message is for."""

from __future__ import annotations

from collections.abc import Iterable

from parley.gateway.routes import RouteTable
from parley.profiles import DEFAULT_PROFILE, Profile
from parley.protocol import ParleyError, SessionSource

__all__ = ["NobodyThere", "Router"]


class NobodyThere(ParleyError):
    """No profile that is served answers here."""


class Router:
    """A named profile's own accounts speak to it alone; shared ones go by route, else to `default`.

    Without routes, every account speaks to the profile that brought it.
    """

    def __init__(self, served: Iterable[Profile], routes: RouteTable | None = None) -> None:
        self._served = {profile.name: profile for profile in served}
        self._routes = routes

    def add(self, profile: Profile) -> None:
        """One more is served from now on."""
        self._served[profile.name] = profile

    def remove(self, profile: Profile) -> None:
        """One is not there any more."""
        self._served.pop(profile.name, None)

    def choose(self, owner: Profile, source: SessionSource) -> Profile:
        """The profile that answers what came in by an account of `owner`."""
        if self._routes is None or not owner.is_default:
            return owner
        name = self._routes.match(source) or DEFAULT_PROFILE
        if name not in self._served:
            raise NobodyThere(
                f"No profile answers here: `{name}` is not served, and no route leads elsewhere."
            )
        return self._served[name]
