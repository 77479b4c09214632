"""What the parts of the suite share: how a store is opened, and short sentences over it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Protocol

from parley.protocol import ChatMessage, InboundMessage, Request
from parley.storage.contract import (
    Claim,
    Draft,
    Effect,
    Outcome,
    RateLimit,
    Receipt,
    RequestRecord,
    SessionRecord,
    Store,
    Work,
)
from tests.builders import PLATFORM, a_draft, a_message, an_end, event_name, say

OWNER = "owner-1"


class OpenStore(Protocol):
    """Opens the test's database; a second call opens the same one again."""

    async def __call__(self, *, rate_limit: RateLimit | None = None) -> Store: ...


async def claim_one(store: Store, *, owner: str = OWNER) -> Claim:
    """The one lane that is ready."""
    claims = await store.claim(owner, 1, [PLATFORM])
    assert len(claims) == 1, "no lane was ready"
    return claims[0]


async def converse(store: Store, text: str, reply: str, *, chat: str = "c1") -> Claim:
    """One whole turn; its reply is delivered."""
    await say(store, text, chat=chat)
    claim = await claim_one(store)
    assert claim.lane == chat
    await store.commit(claim, an_end(reply, chat=chat))
    for delivery in await store.lease_deliveries(PLATFORM, OWNER, 10):
        await store.delivered(delivery.id)
    return claim


async def command(store: Store, effect: Effect, *, text: str, chat: str = "c1") -> Outcome:
    """A person gives a slash command; what its effect found."""
    message = a_message(text, chat=chat)
    receipt = await store.submit(chat, event_name(text, chat=chat), message, kind="command")
    found: list[Outcome] = []

    def reply(outcome: Outcome) -> Draft:
        found.append(outcome)
        return a_draft(f"answer to {text}", chat=chat)

    handed = await store.answer(chat, receipt.inbox_id, effect, reply)
    assert handed == []
    return found[0]


async def current(store: Store, chat: str = "c1") -> SessionRecord:
    record = await store.session_of(chat)
    assert record is not None
    return record


async def words(store: Store, chat: str = "c1") -> list[str]:
    """The transcript of a lane's current session, texts only."""
    session = await current(store, chat)
    return [entry.message.text for entry in await store.transcript(session.id)]


async def waiting_replies(store: Store, *, owner: str = OWNER) -> list[str]:
    """Take every reply that may go now, and say it went."""
    texts = []
    while leased := await store.lease_deliveries(PLATFORM, owner, 10):
        for delivery in leased:
            texts.append(delivery.text)
            await store.delivered(delivery.id)
    return texts


def spoken(text: str) -> ChatMessage:
    return ChatMessage("assistant", text)


def asked(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def a_program_message(
    *messages: ChatMessage, chat: str = "c1", lasting: bool = False
) -> InboundMessage:
    """A program asks, and tells what was said before."""
    text = messages[-1].text
    request = Request(f"id of {text}", messages, lasting=lasting)
    return replace(a_message(text, chat=chat), request=request)


async def ask(
    store: Store, *messages: ChatMessage, chat: str = "c1", lasting: bool = False
) -> Receipt:
    """A program asks in a chat; its message is named as one of a person would be."""
    message = a_program_message(*messages, chat=chat, lasting=lasting)
    return await store.submit(chat, event_name(message.text, chat=chat), message)


def a_work(name: str, session: SessionRecord, **changed: Any) -> Work:
    """A process that was just begun for this session."""
    work = Work(
        id=name,
        kind="process",
        lane=session.lane,
        session=session.id,
        generation=0,
        source=a_message("x", chat="c1").source,
        notify=True,
        body={"command": "make"},
    )
    return replace(work, **changed)


def a_record(name: str = "one", **changed: Any) -> RequestRecord:
    """A request that was just made."""
    record = RequestRecord(
        id=f"run_{name}",
        kind="run",
        owner="alice",
        lane="c1",
        dedupe=event_name(name),
        state="queued",
        body={"model": "main", "stream": False},
        result=None,
        key=None,
        fingerprint=None,
        expires_at=None,
        created_at=time.time(),
        ended_at=None,
    )
    return replace(record, **changed)
