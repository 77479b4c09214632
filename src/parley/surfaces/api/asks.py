"""Requests that somebody waits for just now: the events of their turns find them here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from parley.gateway.live import LiveEvent, TurnEnded, TurnStarted
from parley.gateway.requests import ProfileDoor
from parley.protocol import Failed, Final, TurnEvent
from parley.surfaces.api.stream import Mailbox

__all__ = ["Ask", "Asks", "Happening", "first_word", "reply_of"]

_QUIET = 8.0
"""How long an answer may take to begin before its stream does: until then it can be an error."""

Happening: TypeAlias = TurnEvent | TurnStarted | TurnEnded


@dataclass(slots=True)
class Ask:
    """One request. `lane` and `name` say where its message went."""

    id: str
    owner: str
    door: ProfileDoor
    lane: str
    name: str
    events: Mailbox[Happening] = field(default_factory=Mailbox)
    turn: int | None = None
    over: bool = False
    """Its turn has ended: there is nothing to give up any more."""
    ending: Final | Failed | None = None
    """How it ended, as soon as that is known."""

    async def next(self) -> Happening:
        event = await self.events.get()
        if event is None:
            return TurnEnded(stopped=True)
        if isinstance(event, TurnEnded):
            # One that broke off is tried again, unless it is given up.
            self.over = not event.stopped
        return event

    async def end(self) -> TurnEnded:
        """Wait for the turn's end; what happens before is passed over."""
        while True:
            event = await self.next()
            if isinstance(event, TurnEnded):
                return event


async def first_word(ask: Ask) -> Happening | None:
    """The first event that says something; None when that takes long."""
    try:
        async with asyncio.timeout(_QUIET):
            while isinstance(event := await ask.next(), TurnStarted):
                continue
            return event
    except TimeoutError:
        return None


def reply_of(ended: TurnEnded) -> Final | Failed:
    if ended.ending is not None:
        return ended.ending
    return Failed("The answer was stopped before it was complete.", kind="overloaded")


class Asks:
    """All that are open, by their ids."""

    def __init__(self) -> None:
        self._open: dict[str, Ask] = {}

    @contextmanager
    def waiting(self, ask: Ask) -> Iterator[Ask]:
        self._open[ask.id] = ask
        try:
            yield ask
        finally:
            del self._open[ask.id]

    def find(self, id: str, owner: str) -> Ask | None:
        found = self._open.get(id)
        return found if found is not None and found.owner == owner else None

    def take(self, event: LiveEvent) -> bool:
        """Hand an event to whoever waits for it; whether somebody does."""
        ask = self._open.get(event.request or "")
        if ask is None:
            return False
        ask.turn = event.turn
        if isinstance(event.event, TurnEnded):
            ask.ending = event.event.ending
        ask.events.put(event.event)
        return True

    def close(self) -> None:
        """Nobody will be told anything more."""
        for ask in self._open.values():
            ask.events.close()
