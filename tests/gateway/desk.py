"""A small real surface: what is said at a desk is admitted, what is sent to it is noted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

from parley.gateway.intake import FrontDoor
from parley.gateway.live import LiveEvent
from parley.protocol import InboundMessage, SessionSource, TextDelta
from parley.storage.contract import Delivery, Receipt
from parley.surfaces.base import Surface
from tests.waiting import until

__all__ = ["Desk", "at"]

T = TypeVar("T")


def at(chat: str) -> SessionSource:
    """Where a person at the desk speaks from."""
    return SessionSource("desk", chat_id=chat, user_id="ann", user_name="Ann")


class Desk(Surface):
    """The owner's desk. `before_send`, when set, may raise what a platform would."""

    platform = "desk"
    knows_repeats = True
    vouches = True

    _numbers = itertools.count(1)

    def __init__(self, account: str | None = None) -> None:
        self.account = account
        self.sent: list[Delivery] = []
        self.live: list[LiveEvent] = []
        self.before_send: Callable[[Delivery], None] | None = None
        self.door: FrontDoor | None = None

    @property
    def where(self) -> str:
        return "a desk"

    async def start(self, door: FrontDoor) -> None:
        self.door = door

    async def stop(self) -> None:
        self.door = None

    async def send(self, delivery: Delivery) -> str | None:
        if self.before_send is not None:
            self.before_send(delivery)
        self.sent.append(delivery)
        return f"desk-{delivery.id}"

    async def show(self, event: LiveEvent) -> None:
        self.live.append(event)

    # ── what a person does ──

    async def say(self, text: str, *, chat: str = "one", event_id: str | None = None) -> Receipt:
        number = event_id or f"event-{next(self._numbers)}"
        return await self.admit(InboundMessage(at(chat), text, number))

    async def admit(self, message: InboundMessage) -> Receipt:
        assert self.door is not None
        return await self.door.admit(message)

    async def ask(self, text: str, *, chat: str = "one") -> str:
        """Say something and wait for the answer to just this."""
        number = f"event-{next(self._numbers)}"
        await self.say(text, chat=chat, event_id=number)
        await until(lambda: self.answer_to(number))
        found = self.answer_to(number)
        assert found is not None
        return found.text

    # ── what a person sees ──

    def answer_to(self, event_id: str) -> Delivery | None:
        return next((d for d in self.sent if event_id in d.answers), None)

    def texts(self, chat: str = "one") -> list[str]:
        return [d.text for d in self.sent if d.source.chat_id == chat]

    def streamed(self, chat: str = "one") -> str:
        return "".join(
            e.event.text
            for e in self.live
            if e.source.chat_id == chat and isinstance(e.event, TextDelta)
        )

    def shown(self, kind: type[T]) -> list[T]:
        return [e.event for e in self.live if isinstance(e.event, kind)]
