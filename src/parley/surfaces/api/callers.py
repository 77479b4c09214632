"""Who calls: the key in the request, what it may do, and which profile is meant. Fails closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from parley.surfaces.api.auth_attempts import AuthAttempts, bearer_token
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.limits import RateLimits

if TYPE_CHECKING:
    from aiohttp import web

    from parley.config.api_keys import ApiKey, KeyRing

__all__ = ["Caller", "Callers"]

_WHOEVER_ANSWERS: Final = frozenset({"", "parley", "hermes-agent"})
"""Names for “the profile of this key”, for clients that must name some model."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One program with a key, and the profiles that are open to it."""

    key: ApiKey
    profiles: tuple[str, ...]
    home: str
    """Who is meant when nobody is named."""
    path_profile: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names of profiles, such as `gpt-4o` for programs that know no other model."""
    still: Callable[[], bool] = field(default=lambda: True, repr=False)
    """Whether the key still counts: it may have been revoked, or have expired."""

    @property
    def owner(self) -> str:
        """Whose conversations are these. A key that replaces another of its name has them too."""
        # The house's names and a profile's own are apart: a key's name holds no colon.
        return f"house:{self.key.name}" if self.key.all_profiles else self.key.name

    @property
    def reach(self) -> tuple[str, ...]:
        """The profiles that this request may be about: below `/p/`, that one alone."""
        return (self.target(),) if self.path_profile is not None else self.profiles

    def target(self, model: str | None = None) -> str:
        """The profile that is meant; raises unless it is open to this key."""
        named = self.path_profile
        if named is not None and named not in self.profiles:
            raise ApiError.not_found(f"There is no profile `{_plain(named)}` for this key.")
        if model is None or model in _WHOEVER_ANSWERS:
            if named is None and self.home not in self.profiles:
                raise ApiError.not_found("The profile of this key is not served here.")
            return named or self.home
        meant = model if model in self.profiles else self.aliases.get(model, model)
        if meant not in self.profiles or named not in (None, meant):
            raise ApiError.not_found(
                f"There is no model `{_plain(model)}` for this key; `GET /v1/models` lists them.",
                param="model",
                code="model_not_found",
            )
        return meant

    def models(self) -> list[str]:
        """Every name that this request may use: profiles first, then their other names."""
        reach = self.reach
        others = (name for name, profile in self.aliases.items() if profile in reach)
        return list(dict.fromkeys((*reach, *others)))


class Callers:
    """Knows the keys. `home` is the profile that the local key speaks to."""

    def __init__(
        self,
        ring: KeyRing,
        *,
        home: str,
        per_minute: int,
        aliases: Mapping[str, str] | None = None,
        attempts: AuthAttempts | None = None,
    ) -> None:
        self.attempts = attempts or AuthAttempts()
        self._ring = ring
        self._home = home
        self._per_minute = per_minute
        self._aliases = dict(aliases or {})
        self._limits = RateLimits()

    def authenticate(self, request: web.Request) -> ApiKey | None:
        """The key in the request, if it holds one that counts."""
        return self.attempts.judge(request, self._find, _bucket)

    def _find(self, token: str) -> ApiKey | None:
        return self._ring.find(token, time.time())

    def admit(
        self, request: web.Request, scopes: Sequence[str], profiles: tuple[str, ...]
    ) -> Caller:
        """The caller; raises unless its key has one of `scopes` and is within its rate."""
        key = self.authenticate(request)
        if key is None:
            raise ApiError.unauthorized(
                "Send a key of `parley keys create` in the header Authorization."
            )
        if not key.scopes.intersection(scopes):
            raise ApiError.forbidden(
                f"This key may not do that: it needs the scope {' or '.join(scopes)}."
            )
        self.count(key)
        return self._caller(key, request, profiles)

    def count(self, key: ApiKey) -> None:
        """One more request of this key; raises when that is too many."""
        per_minute = self._per_minute if key.per_minute is None else key.per_minute
        # 0 in the settings is no limit.
        wait = self._limits.allow(_bucket(key), per_minute or None, time.monotonic())
        if wait is not None:
            raise ApiError.rate_limited(wait)

    def recognise(self, request: web.Request, profiles: tuple[str, ...]) -> Caller | None:
        """Who calls where nobody needs a key; an address that has to wait is answered without."""
        try:
            key = self.authenticate(request)
        except ApiError:
            return None
        return None if key is None else self._caller(key, request, profiles)

    def _caller(self, key: ApiKey, request: web.Request, profiles: tuple[str, ...]) -> Caller:
        reach = profiles if key.all_profiles else tuple(n for n in profiles if n == key.profile)
        home = self._home if key.all_profiles else key.profile

        def still() -> bool:
            token = bearer_token(request)
            return token is not None and self._find(token) is not None

        path_profile = request.match_info.get("profile")
        return Caller(key, reach, home, path_profile, self._aliases, still)


def _bucket(key: ApiKey) -> str:
    """A key's name in tables, apart from every other key's."""
    return f"{key.profile}:{key.id}"


def _plain(name: str) -> str:
    """A name as it may be repeated to whoever sent it."""
    return "".join(each for each in name[:80] if each.isprintable())
