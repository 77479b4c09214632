"""Answering a request that has an `Idempotency-Key`: once, however often it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from parley.protocol import InboundMessage
from parley.storage.contract import RequestRecord
from parley.surfaces.api.asks import Ask
from parley.surfaces.api.desk import Desk
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.talk import Talk

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Reply", "give_once"]

_TRIES: Final = 3


class Reply(Protocol):
    """A way to answer: as it happens, or once more."""

    async def give(self, ask: Ask) -> web.StreamResponse: ...
    async def repeat(self, before: RequestRecord) -> web.StreamResponse: ...


async def give_once(
    desk: Desk, talk: Talk, message: InboundMessage, record: RequestRecord, reply: Reply
) -> web.StreamResponse:
    records = desk.records(talk.door)
    for _ in range(_TRIES):
        is_first = False
        try:
            with desk.beside(talk, message) as ask:
                before = await desk.hand_in(talk, message, record)
                is_first = before is None
                if before is None:
                    return await reply.give(ask)
        finally:
            # Not beside it any more: a turn that ends from here on is written down by itself.
            if is_first:
                await asyncio.shield(records.settle(record.id, ask.ending))
        # The first of them ends as it may: when it fails, this one is asked in its place.
        over = await records.until_over(before.id)
        if over is not None:
            return await reply.repeat(over)
    raise ApiError.unavailable(
        "The requests with this key had no answer; ask again.", retry_after=1
    )
