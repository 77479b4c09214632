"""Builders the tests share: sources, messages, replies, and waiting for a fact."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from parley.protocol import ChatMessage, InboundMessage, SessionSource
from parley.storage.contract import Draft, Receipt, Store, TurnEnd

PLATFORM = "test"


def a_source(chat: str = "c1", *, platform: str = PLATFORM) -> SessionSource:
    return SessionSource(platform, chat_id=chat, user_id=f"user-of-{chat}")


def a_message(text: str, *, chat: str = "c1", platform: str = PLATFORM) -> InboundMessage:
    return InboundMessage(a_source(chat, platform=platform), text, event_id=f"event-{text}")


def a_draft(
    text: str, *, chat: str = "c1", platform: str = PLATFORM, handover: bool = False
) -> Draft:
    source = a_source(chat, platform=platform)
    return Draft(f"reply:{chat}:{text}", source, text, handover=handover)


def an_end(*replies: str, chat: str = "c1", platform: str = PLATFORM) -> TurnEnd:
    """A turn that ends well and says these replies."""
    return TurnEnd(
        "done",
        tuple(ChatMessage("assistant", text) for text in replies),
        tuple(a_draft(text, chat=chat, platform=platform) for text in replies),
    )


def event_name(text: str, *, chat: str = "c1") -> str:
    """The name of an event: it says nothing of the text, and the same text has the same."""
    return f"{chat}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


async def say(store: Store, text: str, *, chat: str = "c1", platform: str = PLATFORM) -> Receipt:
    """A person writes in a chat; the chat is the lane."""
    message = a_message(text, chat=chat, platform=platform)
    return await store.submit(chat, event_name(text, chat=chat), message)


async def eventually(fact: Callable[[], bool], *, within: float = 20.0) -> None:
    """Wait until the fact holds; fail when it takes too long."""
    async with asyncio.timeout(within):
        while not fact():
            await asyncio.sleep(0.005)
