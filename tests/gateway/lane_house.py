"""Lanes on a real store, with a handler that tells what runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from parley.gateway.lanes import Handler, Lanes, RunningTurn
from parley.protocol import ChatMessage
from parley.storage.contract import Receipt, Store, TurnEnd
from tests.builders import PLATFORM, a_message, event_name

Work = Callable[[RunningTurn], Awaitable[None]]


async def nothing(turn: RunningTurn) -> None:
    """A turn that answers at once."""


class Answers:
    """A handler: does its work, answers, and keeps book of what ran when."""

    def __init__(self, work: Work = nothing) -> None:
        self.work = work
        self.begun: list[str] = []
        self.answered: list[str] = []
        self.cancelled: list[str] = []
        self.running: set[str] = set()
        self.most_at_once = 0
        self.together: list[str] = []
        """Lanes that were seen running two turns at once: there should be none."""

    async def __call__(self, turn: RunningTurn) -> None:
        lane, text = turn.claim.lane, turn.claim.messages[0].message.text
        if lane in self.running:
            self.together.append(lane)
        self.running.add(lane)
        self.begun.append(text)
        self.most_at_once = max(self.most_at_once, len(self.running))
        try:
            await self.work(turn)
        except asyncio.CancelledError:
            self.cancelled.append(text)
            raise
        finally:
            self.running.discard(lane)
        await turn.commit(TurnEnd("done", (ChatMessage("assistant", f"re: {text}"),)))
        self.answered.append(text)


@asynccontextmanager
async def served(
    store: Store, handler: Handler, *, concurrency: int = 50, owner: str = "owner-1"
) -> AsyncIterator[Lanes]:
    """Lanes that run the handler until the block ends; then they are drained."""
    await store.recover(owner)
    lanes = Lanes(store, owner=owner, platforms=[PLATFORM], concurrency=concurrency)
    serving = asyncio.create_task(lanes.serve(handler))
    lanes.look_again()
    try:
        yield lanes
    finally:
        await lanes.drain(0)
        serving.cancel()
        await asyncio.wait([serving])
        assert serving.cancelled(), serving.exception()


async def write(
    lanes: Lanes, text: str, *, chat: str = "c1", not_before: float | None = None
) -> Receipt:
    message = a_message(text, chat=chat)
    return await lanes.submit(chat, event_name(text, chat=chat), message, not_before=not_before)
