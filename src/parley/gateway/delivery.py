"""Replies on their way out: from the outbox to the surface that confirms them.

Replies of one conversation go in order; conversations do not wait for each other. A reply that
did not go is tried again, for as long as it takes. One that may have gone is repeated only where
the surface knows a repeat when it sees one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from parley.gateway.live import Live, LiveEvent
from parley.gateway.persist import until_stored
from parley.protocol import ParleyError
from parley.storage.contract import Delivery, Store, StoreUnavailable

__all__ = ["Deliveries", "NotSent", "Rejected", "SurfacePort", "Unreachable"]

_log = logging.getLogger("parley.delivery")

_LEASED_AT_ONCE = 200
_LONGEST_PAUSE = 300.0


class NotSent(ParleyError):
    """The surface knows that the reply did not go; it may go after `after` seconds."""

    def __init__(self, why: str, *, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class Unreachable(ParleyError):
    """Nobody is there; the reply waits until the surface says the conversation is back."""


class Rejected(ParleyError):
    """The platform will never take this reply."""


class SurfacePort(Protocol):
    """What the gateway needs of a surface."""

    @property
    def platform(self) -> str: ...

    @property
    def supports_async_delivery(self) -> bool:
        """Whether a reply can be delivered after the turn that asked for it."""

    @property
    def knows_repeats(self) -> bool:
        """Whether the same delivery sent twice is shown once."""

    async def send(self, delivery: Delivery) -> str | None:
        """Deliver and return the platform's id; raise NotSent, Unreachable or Rejected."""

    async def show(self, event: LiveEvent) -> None:
        """Show what a running turn says; may do nothing."""


class Deliveries:
    """The outbox of one profile, served to its surfaces."""

    def __init__(
        self, store: Store, *, owner: str, surfaces: Mapping[str, SurfacePort], live: Live
    ) -> None:
        self._store = store
        self._owner = owner
        self._surfaces = surfaces
        self._live = live
        self._wake = {platform: asyncio.Event() for platform in surfaces}
        self._tasks: set[asyncio.Task[None]] = set()
        self._returns = 0

    def surface(self, platform: str) -> SurfacePort | None:
        return self._surfaces.get(platform)

    def knows_repeats(self, platform: str) -> bool:
        surface = self._surfaces.get(platform)
        return surface is not None and surface.knows_repeats

    def hand_over(self, leased: Sequence[Delivery], platform: str) -> None:
        """Send what a commit leased already, and look for the rest."""
        surface = self._surfaces.get(platform)
        if surface is None:
            return
        for delivery in leased:
            self._begin(surface, delivery)
        if not leased:
            self._wake[platform].set()

    async def back(self, lane: str, platform: str) -> None:
        """A conversation can be reached again: what was parked for it may go."""
        self._returns += 1
        try:
            if await self._store.unpark(lane):
                self._wake[platform].set()
        except StoreUnavailable:
            # Not waited for: the surface has more to say, such as that nothing can be stored.
            self._keep(asyncio.create_task(self._unpark_later(lane, platform)))

    async def _unpark_later(self, lane: str, platform: str) -> None:
        if await until_stored(partial(self._store.unpark, lane)):
            self._wake[platform].set()

    async def serve(self) -> None:
        """Serve every surface until cancelled; sends under way are then waited for briefly."""
        try:
            async with asyncio.TaskGroup() as group:
                for surface in self._surfaces.values():
                    group.create_task(self._send_for_ever(surface))
                    group.create_task(self._show_for_ever(surface))
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def flush(self, timeout: float) -> None:
        """Wait until sends under way are over."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def _send_for_ever(self, surface: SurfacePort) -> None:
        wake = self._wake[surface.platform]
        while True:
            wake.clear()
            due = await until_stored(
                partial(
                    self._store.lease_deliveries, surface.platform, self._owner, _LEASED_AT_ONCE
                )
            )
            for delivery in due:
                self._begin(surface, delivery)
            if len(due) == _LEASED_AT_ONCE:
                continue
            await self._nap(surface.platform, wake)

    async def _nap(self, platform: str, wake: asyncio.Event) -> None:
        next_at = await until_stored(partial(self._store.next_delivery_at, platform))
        pause = None if next_at is None else max(0.0, next_at - time.time())
        try:
            async with asyncio.timeout(pause):
                await wake.wait()
        except TimeoutError:
            return

    def _begin(self, surface: SurfacePort, delivery: Delivery) -> None:
        self._keep(asyncio.create_task(self._send(surface, delivery), name=f"send-{delivery.id}"))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, surface: SurfacePort, delivery: Delivery) -> None:
        """The supervisor of one send: what became of it is stored, come what may."""
        number, store, returns = delivery.id, self._store, self._returns
        result: Callable[[], Awaitable[bool | None]]
        try:
            platform_id = await surface.send(delivery)
            result = partial(store.delivered, number, platform_id)
        except Unreachable as reason:
            # Parked, unless the conversation came back while this send was failing.
            after = None if returns == self._returns else 0.0
            result = partial(store.retry_delivery, number, after, str(reason))
        except NotSent as reason:
            pause = _pause(delivery.attempts) if reason.after is None else reason.after
            result = partial(store.retry_delivery, number, pause, str(reason))
        except Rejected as reason:
            _log.warning("reply_rejected", extra={"delivery": number, "why": str(reason)})
            result = partial(store.abandon_delivery, number, "dead", str(reason))
        except Exception as error:  # noqa: BLE001 - the supervisor
            _log.exception(
                "send_broke_off", extra={"delivery": number, "platform": surface.platform}
            )
            if surface.knows_repeats:
                pause = _pause(delivery.attempts)
                result = partial(store.retry_delivery, number, pause, repr(error))
            else:
                why = f"The send broke off and may have arrived: {error!r}"
                result = partial(store.abandon_delivery, number, "unsure", why)
        # A confirmed reply that nothing waits behind is the end of it.
        if await until_stored(result) is not False:
            self._wake[surface.platform].set()

    async def _show_for_ever(self, surface: SurfacePort) -> None:
        async for event in self._live.subscribe(surface.platform):
            try:
                await surface.show(event)
            except Exception:  # noqa: BLE001 - the supervisor: a preview is only a preview
                _log.exception("show_failed", extra={"platform": surface.platform})


def _pause(attempts: int) -> float:
    longest = min(_LONGEST_PAUSE, 0.5 * 2.0 ** min(attempts, 16))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
