"""What running turns say while they run, on its way to the surfaces that show it.

Ephemeral: nothing here is stored, and a surface that cannot keep up gets fewer, longer pieces.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from parley.protocol import (
    Failed,
    Final,
    ReasoningDelta,
    Request,
    SessionSource,
    TextDelta,
    TurnEvent,
    Usage,
)

__all__ = ["Account", "Live", "LiveEvent", "TurnEnded", "TurnStarted"]

Account: TypeAlias = tuple[str, str | None]
"""A platform, and which of the accounts there; None where a profile has but one."""


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn begins, or begins again after a restart."""

    resumed: bool = False


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """Nothing more comes of this turn, and its end is stored. Its reply comes by the outbox.

    A program that waits for it takes the `ending` instead, and what the turn's model calls used.
    """

    stopped: bool = False
    goes_on: bool = False
    """It was only set aside: the next gateway goes on with it."""
    ending: Final | Failed | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """One event of one turn, bound to where the turn came from."""

    number: int
    lane: str
    turn: int
    source: SessionSource
    event: TurnEvent | TurnStarted | TurnEnded
    request: str | None = None
    """The request of a program that this turn answers."""
    lasting: bool = False
    """Which goes on without its connection, and is written down."""
    session: str = ""
    answers: tuple[str, ...] = ()
    """The platform's ids of the messages that the turn answers."""


class _Place:
    """Where an event waits."""

    __slots__ = ("event",)

    def __init__(self, event: LiveEvent) -> None:
        self.event = event


class _Subscription:
    """A bounded buffer: past its length, text of the same turn runs together."""

    def __init__(self, length: int) -> None:
        self._waiting: deque[_Place] = deque()
        self._newest: dict[int, _Place] = {}
        self._length = length
        self._arrived = asyncio.Event()

    def put(self, event: LiveEvent) -> None:
        if len(self._waiting) >= self._length and self._merged(event):
            return
        place = self._newest[event.turn] = _Place(event)
        self._waiting.append(place)
        self._arrived.set()

    def _merged(self, event: LiveEvent) -> bool:
        """Add text to the newest of its own turn; other turns may have spoken in between."""
        newest = self._newest.get(event.turn)
        if newest is None:
            return False
        before, after = newest.event.event, event.event
        if isinstance(before, TextDelta) and isinstance(after, TextDelta):
            newest.event = replace(newest.event, event=TextDelta(before.text + after.text))
            return True
        if isinstance(before, ReasoningDelta) and isinstance(after, ReasoningDelta):
            newest.event = replace(newest.event, event=ReasoningDelta(before.text + after.text))
            return True
        return False

    async def next(self) -> LiveEvent:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        place = self._waiting.popleft()
        if self._newest.get(place.event.turn) is place:
            del self._newest[place.event.turn]
        return place.event


class Live:
    """The events of one profile's running turns, by the account they go to."""

    def __init__(self, *, buffer: int = 2000) -> None:
        self._buffer = buffer
        self._subscriptions: dict[Account, list[_Subscription]] = {}
        self._number = 0

    def publish(
        self,
        lane: str,
        turn: int,
        source: SessionSource,
        event: TurnEvent | TurnStarted | TurnEnded,
        request: Request | None = None,
        *,
        session: str = "",
        answers: tuple[str, ...] = (),
    ) -> None:
        subscriptions = self._subscriptions.get((source.platform, source.account))
        if not subscriptions:
            return
        self._number += 1
        asked, lasts = (None, False) if request is None else (request.id, request.lasting)
        live = LiveEvent(*(self._number, lane, turn, source, event, asked, lasts), session, answers)
        for subscription in subscriptions:
            subscription.put(live)

    async def subscribe(
        self, platform: str, account: str | None = None
    ) -> AsyncIterator[LiveEvent]:
        """Events of this account's turns from now on, numbered upwards."""
        subscription = _Subscription(self._buffer)
        subscriptions = self._subscriptions.setdefault((platform, account), [])
        subscriptions.append(subscription)
        try:
            while True:
                yield await subscription.next()
        finally:
            subscriptions.remove(subscription)
