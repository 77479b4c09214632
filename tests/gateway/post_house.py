"""Deliveries on a real store, to surfaces that behave as a test says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from parley.gateway.delivery import Deliveries
from parley.gateway.live import Live, LiveEvent
from parley.gateway.tally import Tally
from parley.profiles import Profile
from parley.protocol import TextDelta
from parley.storage.contract import Delivery, Store, TurnEnd
from tests.builders import a_draft, say

Behaviour = Callable[[Delivery], Awaitable[None]]


class Surface:
    """A place that writes down what it is sent, after behaving as the test says."""

    supports_async_delivery = True
    shows_questions = False
    sends_files = False
    verb = "/"
    rooms = None
    greets = False

    def __init__(
        self,
        platform: str = "test",
        *,
        knows_repeats: bool = False,
        behave: Behaviour | None = None,
    ) -> None:
        self.platform = platform
        self.knows_repeats = knows_repeats
        self.can_ask = False
        self.behave = behave
        self.tried: list[Delivery] = []
        self.at: list[float] = []
        self.sent: list[str] = []
        self.shown: list[LiveEvent] = []

    async def send(self, delivery: Delivery) -> str | None:
        self.tried.append(delivery)
        self.at.append(time.monotonic())
        if self.behave is not None:
            await self.behave(delivery)
        self.sent.append(delivery.text)
        return f"platform-{delivery.id}"

    async def show(self, event: LiveEvent) -> None:
        self.shown.append(event)
        if event.event == TextDelta("break"):
            raise ZeroDivisionError


@asynccontextmanager
async def served(
    store: Store, *surfaces: Surface, live: Live | None = None
) -> AsyncIterator[Deliveries]:
    profile = Profile("default", Path("nowhere"))
    deliveries = Deliveries(profile, store, owner="owner-1", live=live or Live(), tally=Tally())
    for surface in surfaces:
        deliveries.attach(surface)
    serving = asyncio.create_task(deliveries.serve())
    try:
        yield deliveries
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        assert serving.cancelled(), serving.exception()


async def reply(
    store: Store, *texts: str, chat: str = "c1", platform: str = "test", handover: bool = False
) -> list[Delivery]:
    """A turn that ends with these replies; those the commit handed over."""
    await say(store, f"asks for {texts}", chat=chat, platform=platform)
    [claim] = await store.claim("owner-1", 1, [platform])
    drafts = tuple(a_draft(t, chat=chat, platform=platform, handover=handover) for t in texts)
    return list((await store.commit(claim, TurnEnd("done", (), drafts))).handed)


async def settled(store: Store) -> None:
    """Wait until nothing is on its way."""
    async with asyncio.timeout(60):
        while (await store.health()).undelivered:
            await asyncio.sleep(0.005)
