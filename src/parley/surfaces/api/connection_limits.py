"""Connection limits: how many may be open, and how many of one address before it shows a key.

Whoever has shown no key can be let go at any time. When room is short, the connection that waited
longest at the address with the most such connections is closed: a client that means it sends its
request within milliseconds, so a flood pushes out itself and nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from parley.config.hosts import parse_address

if TYPE_CHECKING:
    from aiohttp import web

    from parley.surfaces.api.site import SiteLimits

__all__ = ["LOCAL", "ConnectionTable", "TrackedConnection", "address_group", "mark_authenticated"]

_log = logging.getLogger("parley.api")

LOCAL: Final = "local"
"""The group of all addresses that only this machine has."""

_SETTLED_AFTER: Final = 1.0
_WARNED_EVERY: Final = 60.0


class TrackedConnection(Protocol):
    """What the table holds: a connection, or a TLS handshake that may become one."""

    work: asyncio.Task[None] | None

    def abort(self) -> None: ...

    def look(self, now: float, /) -> None:
        """Called about once a second: let the client go when it takes too long."""


def address_group(address: object) -> str:
    """Which addresses are counted as one: loopback, an IPv4 address, or an IPv6 network of /64.

    One customer has a /64 to choose addresses from.
    """
    found = parse_address(str(address))
    if found is None or found.is_loopback:
        return LOCAL  # a Unix socket has no address
    if found.version == 6:
        return found.exploded[:19]
    return str(found)


def mark_authenticated(request: web.Request) -> None:
    """The request showed a key that counts: its connection is not let go to make room."""
    trust = getattr(request.protocol, "trust", None)
    if trust is not None:
        trust()


class ConnectionTable:
    """All connections of a site. Looks after them by one timer, not by one for each request."""

    def __init__(self, most: int, limits: SiteLimits) -> None:
        self.limits = limits
        self.open: dict[TrackedConnection, str] = {}
        """Each with the group of its address."""
        self._most = most
        self._most_remote = most - min(limits.local_reserve, most // 2)
        self._remote = 0
        self._anonymous: dict[str, dict[TrackedConnection, float]] = {}
        self._loop = asyncio.get_running_loop()
        shortest = min(limits.header_seconds, limits.stalled_seconds)
        self._every = min(1.0, max(0.02, shortest / 5))
        self._timer: asyncio.TimerHandle | None = None
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._warned_at: float | None = None

    def enter(self, connection: TrackedConnection, group: str) -> bool:
        """Whether there is room for one more; one without a key may be let go for it."""
        now = self._loop.time()
        if not self._has_room(group):
            self._warn(now)
            given_up = self._next_to_go(group)
            if given_up is None:
                return False
            self._drop(given_up)
        self.open[connection] = group
        self._remote += group != LOCAL
        self._anonymous.setdefault(group, {})[connection] = now
        self._emptied.clear()
        if self._timer is None:
            self._timer = self._loop.call_later(self._every, self._look)
        return True

    def trust(self, connection: TrackedConnection) -> None:
        """It showed a key."""
        group = self.open.get(connection)
        held = self._anonymous.get(group) if group is not None else None
        if group is None or held is None:
            return
        held.pop(connection, None)
        if not held:
            del self._anonymous[group]

    def leave(self, connection: TrackedConnection) -> None:
        self.trust(connection)
        group = self.open.pop(connection, None)
        if group is not None:
            self._remote -= group != LOCAL
        if not self.open:
            self._emptied.set()

    async def empty(self) -> None:
        await self._emptied.wait()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in tuple(self.open):
            connection.abort()

    def _has_room(self, group: str) -> bool:
        if len(self.open) >= self._most:
            return False
        return group == LOCAL or self._remote < self._most_remote

    def _next_to_go(self, entering: str) -> TrackedConnection | None:
        """Local ones give way to remote ones only where an address has more than its share."""
        groups = self._anonymous
        if entering != LOCAL and (
            self._remote >= self._most_remote
            or len(groups.get(LOCAL, ())) <= self.limits.anonymous_per_address
        ):
            groups = {name: held for name, held in groups.items() if name != LOCAL}
        if not groups:
            return None
        largest = max(groups.values(), key=len)
        return next(iter(largest))

    def _drop(self, connection: TrackedConnection) -> None:
        self.leave(connection)
        connection.abort()

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for connection in tuple(self.open):
            connection.look(now)
        share = self.limits.anonymous_per_address
        for held in tuple(self._anonymous.values()):
            # A burst of clients behind one address is served before it is this old.
            settled = [each for each, since in held.items() if now - since > _SETTLED_AFTER]
            for connection in settled[: max(0, len(held) - share)]:
                self._drop(connection)
        if self.open:
            self._timer = self._loop.call_later(self._every, self._look)

    def _warn(self, now: float) -> None:
        if self._warned_at is None or now - self._warned_at > _WARNED_EVERY:
            self._warned_at = now
            _log.warning(
                "All %d connections are taken; those that showed no key make room", self._most
            )
