"""Authentication attempts: the one place where a key or token that a client shows is judged.

Failures are counted for each address. After a few, the address has to wait, longer each time, and
is refused meanwhile whatever it shows. A key that was accepted from that address before goes
through all the same, and on this machine every good key does: one program with a wrong key must not
lock out the others.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from parley import audit
from parley.config.hosts import parse_address
from parley.profiles import Profile
from parley.surfaces.api.connection_limits import LOCAL, address_group, mark_authenticated
from parley.surfaces.api.errors import ApiError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["AuthAttempts", "bearer_token"]

_log = logging.getLogger("parley.api")

_Owner = TypeVar("_Owner")

_FREE_FAILURES: Final = 10
_LONGEST_WAIT: Final = 60.0
_FORGOTTEN_AFTER: Final = 600.0
_MOST_ADDRESSES: Final = 4096
_MOST_OWNERS: Final = 64
"""Of one address, which are remembered as accepted."""
_MOST_HOPS: Final = 32


def bearer_token(request: web.Request) -> str | None:
    """What the request shows as `Authorization: Bearer`; None when it shows nothing."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return (token.strip() or None) if scheme.lower() == "bearer" else None


class _Failures:
    """Of one address: how many, the last, and until when it has to wait."""

    __slots__ = ("at", "count", "until")

    def __init__(self) -> None:
        self.at, self.count, self.until = 0.0, 0, 0.0


class AuthAttempts:
    """Judges what clients show. `trusted_proxies` name their clients in `X-Forwarded-For`.

    The first use of a key from an address, and wrong ones, are in the audit log of `home`.
    """

    def __init__(
        self,
        trusted_proxies: Iterable[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
        home: Profile | None = None,
    ) -> None:
        self._home = home
        self._proxies = [ipaddress.ip_network(each, strict=False) for each in trusted_proxies]
        self._clock = clock
        self._failures: dict[str, _Failures] = {}
        self._accepted: dict[str, dict[str, None]] = {}

    def judge(
        self,
        request: web.Request,
        find: Callable[[str], _Owner | None],
        name: Callable[[_Owner], str],
    ) -> _Owner | None:
        """Whose token the request shows; None without one, or when it is nobody's.

        Raises 429 while its address has to wait. `name` tells owners apart.
        """
        token = bearer_token(request)
        if token is None:
            return None
        group = self.client_group(request)
        owner = find(token)
        failures = self._failures.get(group)
        if failures is not None and (wait := failures.until - self._clock()) > 0:
            # Refused whether it is good or not, so that nothing is learned from trying.
            known = owner is not None and name(owner) in self._accepted.get(group, ())
            if not known and (group != LOCAL or owner is None):
                audit.count("key.refused", group, profile=self._home, origin=group)
                raise self._too_many(wait)
        if owner is None:
            self._note_failure(group)
            return None
        self._note_success(request, group, name(owner))
        return owner

    def client_group(self, request: web.Request) -> str:
        """The address that counts, as a group of addresses: see `address_group`."""
        peer = request.remote or ""
        if not self._proxies or not self._is_proxy(peer):
            return address_group(peer)
        hops = ",".join(request.headers.getall("X-Forwarded-For", ())).split(",")
        # From the right: what stands left of the last proxy's own word, anyone may have written.
        for hop in reversed(hops[-_MOST_HOPS:]):
            client = hop.strip()
            if parse_address(client) is None:
                break
            if not self._is_proxy(client):
                return address_group(client)
        return address_group(peer)

    def _is_proxy(self, text: str) -> bool:
        address = parse_address(text)
        return address is not None and any(address in network for network in self._proxies)

    def _note_success(self, request: web.Request, group: str, owner: str) -> None:
        mark_authenticated(request)
        owners = self._accepted.get(group)
        if owners is None:
            _make_room(self._accepted)
            owners = self._accepted[group] = {}
        if owner not in owners:
            _make_room(owners, _MOST_OWNERS)
            owners[owner] = None
            audit.record("key.used", profile=self._home, who=f"key:{owner}", origin=group)

    def _note_failure(self, group: str) -> None:
        """Raises when that was one too many."""
        audit.count("key.refused", group, profile=self._home, origin=group)
        now = self._clock()
        failures = self._failures.pop(group, None)
        if failures is None or now - failures.at > _FORGOTTEN_AFTER:
            failures = _Failures()
        _make_room(self._failures)
        self._failures[group] = failures
        failures.at = now
        failures.count += 1
        above = failures.count - _FREE_FAILURES
        if above <= 0:
            return
        wait = min(_LONGEST_WAIT, 2.0 ** min(above - 1, 30))
        failures.until = now + wait
        if above == 1:
            _log.warning("failed_keys", extra={"address": group, "failures": failures.count})
        raise self._too_many(wait)

    @staticmethod
    def _too_many(wait: float) -> ApiError:
        return ApiError.rate_limited(
            wait, "Too many keys from this address were wrong; wait, then send one that works."
        )


def _make_room(table: dict[str, _Owner], most: int = _MOST_ADDRESSES) -> None:
    """The one that was added first goes."""
    while len(table) >= most:
        del table[next(iter(table))]
