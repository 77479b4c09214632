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
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from parley.gateway.live import Account, Live, LiveEvent
from parley.gateway.persist import until_stored
from parley.gateway.tally import Tally
from parley.profiles import Profile
from parley.protocol import ParleyError, SessionSource
from parley.storage.contract import Delivery, Store, StoreUnavailable
from parley.storage.people import Chat

__all__ = ["ChatRooms", "Deliveries", "NotSent", "Rejected", "SurfacePort", "Unreachable"]

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


class ChatRooms(Protocol):
    """Makes and keeps the rooms of a person's chats. Each may be asked for again after a crash."""

    @property
    def first_in_place(self) -> bool:
        """Whether a person's first chat is the room in which they wrote, and no other is made."""

    async def open_room(self, source: SessionSource, chat: Chat) -> SessionSource:
        """The room of this chat of whoever speaks in `source`, made unless it is there already.

        Returns where it is. Raises a ParleyError when it cannot be made now.
        """

    async def name_room(self, chat: Chat) -> None:
        """Show the name that the chat has now."""

    async def archive_room(self, chat: Chat) -> None:
        """Show that the chat is archived, or that it is not any more."""


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

    @property
    def can_ask(self) -> bool:
        """Whether a person there sees a question while a turn waits for the answer."""

    @property
    def shows_questions(self) -> bool:
        """Whether it shows questions live; else they are sent like replies."""

    @property
    def sends_files(self) -> bool:
        """Whether files go out with a reply."""

    @property
    def verb(self) -> str:
        """What commands begin with, as people there write them."""

    @property
    def rooms(self) -> ChatRooms | None:
        """Where each chat is a room of its own: whoever makes those rooms."""

    @property
    def greets(self) -> bool:
        """Whether a person is greeted when they first write there."""

    async def send(self, delivery: Delivery) -> str | None:
        """Deliver and return the platform's id; raise NotSent, Unreachable or Rejected."""

    async def show(self, event: LiveEvent) -> None:
        """Show what a running turn says; may do nothing."""


class _Nowhere:
    """Stands for an account that is not served just now, such as one whose token is wrong."""

    async def send(self, delivery: Delivery) -> str | None:
        account = delivery.source.account or delivery.source.platform
        raise NotSent(f"The account `{account}` it came in by is not served here.")


class Deliveries:
    """The outbox of one profile, served to the accounts it speaks by."""

    def __init__(
        self, profile: Profile, store: Store, *, owner: str, live: Live, tally: Tally
    ) -> None:
        self._profile = profile
        self._store = store
        self._owner = owner
        self._surfaces: dict[Account, SurfacePort] = {}
        self._live = live
        self._tally = tally
        self._wake: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: asyncio.TaskGroup | None = None
        self._returns = 0

    def attach(self, surface: SurfacePort, account: str | None = None) -> None:
        """Serve this account too; `account` is what the sources of this profile call it.

        A surface that takes the place of an earlier one is told what waits as well.
        """
        address = (surface.platform, account)
        new_platform = surface.platform not in self._wake
        new_account = address not in self._surfaces
        self._surfaces[address] = surface
        self._wake.setdefault(surface.platform, asyncio.Event()).set()
        if self._loops is not None:
            if new_platform:
                self._loops.create_task(self._send_for_ever(surface.platform))
            if new_account:
                self._loops.create_task(self._show_for_ever(address))

    def surface(self, source: SessionSource) -> SurfacePort | None:
        return self._surfaces.get((source.platform, source.account))

    def knows_repeats(self, source: SessionSource) -> bool:
        surface = self.surface(source)
        return surface is not None and surface.knows_repeats

    def hand_over(self, leased: Sequence[Delivery], platform: str) -> None:
        """Send what a commit leased already, and look for the rest."""
        for delivery in leased:
            self._begin(delivery)
        if not leased:
            self.look_again(platform)

    def look_again(self, platform: str) -> None:
        """Something may wait to be sent."""
        if platform in self._wake:
            self._wake[platform].set()

    async def back(self, lane: str, platform: str) -> None:
        """A conversation can be reached again: what was parked for it may go."""
        self._returns += 1
        try:
            if await self._store.unpark(lane):
                self.look_again(platform)
        except StoreUnavailable:
            # Not waited for: the surface has more to say, such as that nothing can be stored.
            self._keep(self._unpark_later(lane, platform))

    async def _unpark_later(self, lane: str, platform: str) -> None:
        if await until_stored(partial(self._store.unpark, lane)):
            self.look_again(platform)

    async def serve(self) -> None:
        """Serve every account until cancelled; sends under way are then waited for briefly."""
        try:
            async with asyncio.TaskGroup() as group:
                for platform in self._wake:
                    group.create_task(self._send_for_ever(platform))
                for address in self._surfaces:
                    group.create_task(self._show_for_ever(address))
                group.create_task(asyncio.Event().wait())  # accounts may come later
                self._loops = group
        finally:
            self._loops = None
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def flush(self, timeout: float) -> None:
        """Wait until sends under way are over."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def _send_for_ever(self, platform: str) -> None:
        wake = self._wake[platform]
        here = (surface for (name, _), surface in self._surfaces.items() if name == platform)
        repeats = any(surface.knows_repeats for surface in here)
        resume = partial(self._store.resume_sends, platform, self._owner, repeats=repeats)
        await until_stored(resume)
        while True:
            wake.clear()
            due = await until_stored(
                partial(self._store.lease_deliveries, platform, self._owner, _LEASED_AT_ONCE)
            )
            for delivery in due:
                self._begin(delivery)
            if len(due) == _LEASED_AT_ONCE:
                continue
            await self._nap(platform, wake)

    async def _nap(self, platform: str, wake: asyncio.Event) -> None:
        next_at = await until_stored(partial(self._store.next_delivery_at, platform))
        pause = None if next_at is None else max(0.0, next_at - time.time())
        try:
            async with asyncio.timeout(pause):
                await wake.wait()
        except TimeoutError:
            return

    def _begin(self, delivery: Delivery) -> None:
        if delivery.source.profile != self._profile.name:
            # Its row may be older than the profile's name; whose it is was never in doubt.
            source = replace(delivery.source, profile=self._profile.name)
            delivery = replace(delivery, source=source)
        self._keep(self._send(delivery), name=f"send-{delivery.id}")

    def _keep(self, work: Coroutine[None, None, None], name: str | None = None) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, delivery: Delivery) -> None:
        """The supervisor of one send: what became of it is stored, come what may."""
        number, store, returns = delivery.id, self._store, self._returns
        platform = delivery.source.platform
        surface = self.surface(delivery.source)
        result: Callable[[], Awaitable[bool | None]]
        try:
            platform_id = await (surface or _Nowhere()).send(delivery)
            result = partial(store.delivered, number, platform_id)
            self._tally.delivered += 1
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
            _log.exception("send_broke_off", extra={"delivery": number, "platform": platform})
            if self.knows_repeats(delivery.source):
                pause = _pause(delivery.attempts)
                result = partial(store.retry_delivery, number, pause, repr(error))
            else:
                why = f"The send broke off and may have arrived: {error!r}"
                result = partial(store.abandon_delivery, number, "unsure", why)
        # A confirmed reply that nothing waits behind is the end of it.
        if await until_stored(result) is not False:
            self.look_again(platform)

    async def _show_for_ever(self, address: Account) -> None:
        async for event in self._live.subscribe(*address):
            try:
                await self._surfaces[address].show(event)
            except Exception:  # noqa: BLE001 - the supervisor: a preview is only a preview
                _log.exception("show_failed", extra={"platform": address[0]})


def _pause(attempts: int) -> float:
    longest = min(_LONGEST_PAUSE, 0.5 * 2.0 ** min(attempts, 16))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
