"""`/v1/conversations`: what is asked for, and what a conversation is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import Field

from parley.protocol import ChatMessage
from parley.storage.items import ConversationRecord
from parley.surfaces.api.wire.body import check, tame
from parley.surfaces.api.wire.content import Keeper
from parley.surfaces.api.wire.conversation import Conversation
from parley.surfaces.api.wire.items import kept_items
from parley.surfaces.api.wire.models import Metadata, WireModel
from parley.surfaces.api.wire.responses_in import ResponseItem, add_item

__all__ = [
    "MOST_AT_ONCE",
    "ConversationItemsRequest",
    "ConversationRequest",
    "ConversationUpdate",
    "conversation_object",
    "instructions_in",
    "messages_of",
    "read_items",
    "read_new_conversation",
    "read_update",
]

MOST_AT_ONCE: Final = 20


class ConversationRequest(WireModel):
    """A new conversation."""

    metadata: Metadata = None
    items: list[ResponseItem] | None = Field(
        None, description="What it begins with.", max_length=MOST_AT_ONCE, fail_fast=True
    )


class ConversationUpdate(WireModel):
    """Other notes on a conversation."""

    metadata: Metadata = None


class ConversationItemsRequest(WireModel):
    """More items for a conversation."""

    items: list[ResponseItem] = Field(min_length=1, max_length=MOST_AT_ONCE, fail_fast=True)


Read = tuple[tuple[dict[str, Any], ...], tuple[ChatMessage, ...]]
"""Items as they are kept, and the messages that they are."""


def read_new_conversation(body: object, keep: Keeper) -> tuple[Mapping[str, str], Read]:
    asked = check(ConversationRequest, tame(body))
    return asked.metadata or {}, _read(asked.items or (), keep)


def read_update(body: object) -> Mapping[str, str]:
    return check(ConversationUpdate, tame(body)).metadata or {}


def read_items(body: object, keep: Keeper) -> Read:
    return _read(check(ConversationItemsRequest, tame(body)).items, keep)


def messages_of(items: Sequence[Mapping[str, Any]], keep: Keeper) -> tuple[ChatMessage, ...]:
    """The messages that items which are kept stand for."""
    tamed = tame({"items": list(items)})["items"]
    return _read([check(ResponseItem, item) for item in tamed], keep)[1]


def instructions_in(items: Sequence[Mapping[str, Any]]) -> str:
    """What the items that say how to answer say."""
    texts = [part.get("text", "") for item in items for part in item.get("content", ())]
    return "\n\n".join(text for text in texts if text.strip())


def _read(items: Sequence[ResponseItem], keep: Keeper) -> Read:
    said = Conversation("items", continued=True)
    for index, item in enumerate(items):
        add_item(item, f"items[{index}]", said)
    return kept_items(items), said.all_messages(keep)


def conversation_object(record: ConversationRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "object": "conversation",
        "created_at": int(record.created_at),
        "metadata": dict(record.metadata),
    }
