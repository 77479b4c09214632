"""Those who talk in a benchmark: a terminal on the socket, and a surface without any wire."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from parley.gateway.intake import FrontDoor
from parley.gateway.live import LiveEvent
from parley.protocol import InboundMessage, SessionSource, TextDelta
from parley.storage.contract import Delivery
from parley.surfaces.base import Surface
from parley.surfaces.terminal.client import TerminalClient
from parley.surfaces.terminal.wire import Accepted, Deliver, Show

__all__ = ["Answer", "Bystander", "Terminal"]

_ANSWERED_WITHIN = 60.0
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Answer:
    """How long a turn took: to its first streamed text, and to its reply."""

    first_text: float
    reply: float


class Terminal:
    """One conversation over the gateway's socket. Make it with `open`."""

    def __init__(self, client: TerminalClient, chat: str) -> None:
        self._client = client
        self._chat = chat

    @classmethod
    async def open(cls, socket: Path, chat: str) -> Self:
        client = await TerminalClient.connect(socket)
        await client.hello(chat)
        return cls(client, chat)

    async def ask(self, text: str) -> Answer:
        number = f"{self._chat}-{next(_numbers)}"
        started = time.perf_counter()
        first = 0.0
        await self._client.say(number, text)
        async with asyncio.timeout(_ANSWERED_WITHIN):
            async for frame in self._client.frames():
                match frame:
                    case Show(event="text") if not first:
                        first = time.perf_counter() - started
                    case Accepted(state="refused" | "rate_limited", why=why):
                        raise RuntimeError(f"The gateway refused: {why}")
                    case Deliver(kind=kind, answers=answers, text=reply) if number in answers:
                        took = time.perf_counter() - started
                        await self._client.ack(frame.delivery)
                        if kind != "reply":
                            raise RuntimeError(f"The turn failed: {reply}")
                        return Answer(first, took)
                    case _:
                        pass
        raise RuntimeError("The gateway went away.")

    async def close(self) -> None:
        await self._client.close()


class Bystander(Surface):
    """A surface inside the gateway's own process: what is left is the gateway itself."""

    platform = "bystander"
    knows_repeats = True
    vouches = True

    def __init__(self) -> None:
        self._door: FrontDoor | None = None
        self._replies: dict[str, asyncio.Future[float]] = {}
        self._first_texts: dict[str, float] = {}

    @property
    def where(self) -> str:
        return "in this process"

    async def start(self, door: FrontDoor) -> None:
        self._door = door

    async def stop(self) -> None:
        self._door = None

    async def send(self, delivery: Delivery) -> str | None:
        for number in delivery.answers:
            if delivery.kind == "reply":
                self._replies[number].set_result(time.perf_counter())
            else:
                failed = RuntimeError(f"The turn failed: {delivery.text}")
                self._replies[number].set_exception(failed)
        return None

    async def show(self, event: LiveEvent) -> None:
        if isinstance(event.event, TextDelta):
            self._first_texts.setdefault(event.source.chat_id, time.perf_counter())

    async def ask(self, chat: str, text: str, *, within: float = _ANSWERED_WITHIN) -> Answer:
        assert self._door is not None
        number = f"{chat}-{next(_numbers)}"
        self._first_texts.pop(chat, None)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        started = time.perf_counter()
        source = SessionSource(self.platform, chat_id=chat, user_id="owner")
        await self._door.admit(InboundMessage(source, text, event_id=number))
        async with asyncio.timeout(within):
            done = await reply
        del self._replies[number]
        return Answer(self._first_texts.get(chat, started) - started, done - started)
