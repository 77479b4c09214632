"""A person at a terminal who never gives up: reconnects, says it again, and counts what comes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

from parley.surfaces.terminal.client import Disconnected, TerminalClient
from parley.surfaces.terminal.wire import Accepted, Deliver, Frame, Show

__all__ = ["PHASES", "Conversation", "Moments"]

PHASES = ("submit", "accepted", "stream", "tool", "ended", "delivery", "ack")
"""What a conversation sees happen, in the order of a message's life."""

_SHOWN = {"text": "stream", "tool": "tool", "ended": "ended"}
_SOMETHING_LONG = " ".join(f"word{number}" for number in range(40))


class Moments:
    """Where conversations tell what just happened, and someone waits for it."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}
        self.talking = True

    def happened(self, name: str) -> None:
        event = self._events.pop(name, None)
        if event is not None:
            event.set()

    async def next(self, name: str, *, seconds: float) -> bool:
        """Whether it happened in time."""
        event = self._events.setdefault(name, asyncio.Event())
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True


class Conversation:
    """Numbered messages in one chat, each said under its id until it is accepted."""

    def __init__(self, chat: str, *, socket: Path, seed: str, moments: Moments) -> None:
        self.chat = chat
        self._socket = socket
        self._random = random.Random(seed)
        self._moments = moments
        self._moved = asyncio.Event()
        self._away = 0.0
        self.said: dict[str, str] = {}
        self.accepted: set[str] = set()
        self.replies: dict[str, Deliver] = {}
        self.repeats = 0
        self.faults: list[str] = []

    @property
    def answered(self) -> list[str]:
        """The messages that were answered, in the order of their first answer."""
        return [number for reply in self.replies.values() for number in reply.answers]

    @property
    def settled(self) -> bool:
        return set(self.said) == self.accepted and set(self.said) <= set(self.answered)

    async def run(self) -> None:
        """Talk until cancelled, through as many gateways as it takes."""
        while True:
            with contextlib.suppress(Disconnected):
                client = await TerminalClient.connect(self._socket)
                try:
                    await self._attend(client)
                finally:
                    await client.close()
            away, self._away = self._away, 0.003
            await asyncio.sleep(away)

    async def _attend(self, client: TerminalClient) -> None:
        await client.hello(self.chat)
        for number, text in self.said.items():
            if number not in self.accepted:
                await client.say(number, text)
        speaking = asyncio.create_task(self._speak(client))
        try:
            async for frame in client.frames():
                await self._take(client, frame)
        finally:
            speaking.cancel()
            await asyncio.wait([speaking])

    async def _speak(self, client: TerminalClient) -> None:
        with contextlib.suppress(Disconnected):
            while self._moments.talking:
                patience = self._random.choice((1, 1, 2, 4))
                while len(self.said) - len(set(self.answered)) >= patience:
                    self._moved.clear()
                    await self._moved.wait()
                await asyncio.sleep(self._random.choice((0, 0, 0.01, 0.05)))
                number, text = self._next_message()
                self.said[number] = text
                await client.say(number, text)
                self._moments.happened("submit")
                if self._random.random() < 0.08:
                    await self._go_away(client)
                    return

    async def _go_away(self, client: TerminalClient) -> None:
        """Close the terminal for a moment: replies pile up meanwhile."""
        self._away = self._random.uniform(0, 0.3)
        await client.close()

    async def _take(self, client: TerminalClient, frame: Frame) -> None:
        match frame:
            case Accepted(id=number, state="queued" | "duplicate"):
                self.accepted.add(number)
                self._moments.happened("accepted")
            case Accepted(id=number, state=state, why=why):
                self.faults.append(f"{number} was {state}: {why}")
            case Show(event=event) if event in _SHOWN:
                self._moments.happened(_SHOWN[event])
            case Deliver():
                self._count(frame)
                self._moments.happened("delivery")
                await asyncio.sleep(self._random.choice((0, 0, 0, 0.01, 0.02, 0.2)))
                await client.ack(frame.delivery)
                self._moments.happened("ack")
            case _:
                pass

    def _count(self, reply: Deliver) -> None:
        earlier = self.replies.get(reply.key)
        if earlier is None:
            self.replies[reply.key] = reply
            self._moved.set()
            return
        self.repeats += 1
        if (earlier.text, earlier.answers) != (reply.text, reply.answers):
            self.faults.append(f"{reply.key} came again as something else")

    def _next_message(self) -> tuple[str, str]:
        """An id and a text that occurs in no other; some want time, tools or a long answer."""
        number = f"{self.chat}/{len(self.said)}"
        directives = self._random.choice(
            (
                "",
                "",
                f"[[delay {self._random.uniform(0.01, 0.12):.3f}]]",
                f"{_SOMETHING_LONG} [[chunks 20]] [[pace 0.008]]",
                "[[tool now {}]]",
                "[[tool now {}]] [[tool now {}]] [[delay 0.03]]",
            )
        )
        return number, f"<{number}> {directives}".strip()
