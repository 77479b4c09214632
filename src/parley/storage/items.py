"""What a store keeps of responses and conversations, item by item.

The same promises hold as for the rest of the store: see `parley.storage.contract`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from parley.protocol import ChatMessage, SessionSource

if TYPE_CHECKING:
    from parley.storage.contract import RequestRecord

__all__ = [
    "ConversationChange",
    "ConversationRecord",
    "ItemBody",
    "ItemPage",
    "ItemStore",
    "ResponseItems",
    "instructs",
]

ItemBody = Mapping[str, Any]
"""An item as a program gets it; its `id` is in it."""


def instructs(item: ItemBody) -> bool:
    """Whether it says how to answer, and is no message of the transcript."""
    return item.get("role") in {"system", "developer"}


@dataclass(frozen=True, slots=True)
class ResponseItems:
    """What a response was given and what it answered.

    `stored`: the response itself is kept, and they with it.
    """

    owner: str
    given: Sequence[ItemBody]
    answered: Sequence[ItemBody]
    conversation: str | None = None
    stored: bool = True


@dataclass(frozen=True, slots=True)
class ItemPage:
    items: tuple[ItemBody, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    """A conversation that a program made. What is said in it is said in its lane."""

    id: str
    owner: str
    lane: str
    metadata: Mapping[str, str]
    created_at: float


@dataclass(frozen=True, slots=True)
class ConversationChange:
    """Items of a conversation, and the messages that they are in its transcript.

    `done` is what is kept of the request for it, when it has an idempotency key.
    """

    items: Sequence[ItemBody]
    messages: tuple[ChatMessage, ...]
    source: SessionSource
    done: RequestRecord | None = None


class ItemStore(Protocol):
    """The part of the store that keeps items."""

    async def find_items(self, owner: str, ids: Sequence[str]) -> dict[str, ItemBody]:
        """Those of these ids that are this owner's, by their ids."""

    async def page_of_items(
        self,
        of: Literal["response", "conversation"],
        id: str,
        *,
        limit: int,
        newest_first: bool,
        after: str | None = None,
    ) -> ItemPage | None:
        """What a response was given, or what is in a conversation; None without an item `after`."""

    async def create_conversation(
        self, record: ConversationRecord, change: ConversationChange
    ) -> RequestRecord | None:
        """Store it with its first items; or what was done before under the same key."""

    async def conversation(self, id: str) -> ConversationRecord | None: ...
    async def note_conversation(self, id: str, metadata: Mapping[str, str]) -> bool:
        """Replace its metadata; False when it is not there."""

    async def delete_conversation(self, record: ConversationRecord) -> bool:
        """Remove it with all that was said in it; False while a request is under way there."""

    async def add_conversation_items(
        self, record: ConversationRecord, change: ConversationChange, *, most: int
    ) -> RequestRecord | bool:
        """Append to it; False when it would have more than `most` items.

        Or what was done before under the same key.
        """

    async def conversation_item(self, conversation: str, id: str) -> ItemBody | None: ...
    async def conversation_instructions(self, conversation: str) -> list[ItemBody]:
        """The items that say how to answer in it, oldest first."""

    async def remove_conversation_item(
        self, record: ConversationRecord, id: str, left: ConversationChange
    ) -> bool | None:
        """Remove an item; the conversation goes on with what is `left`.

        False while a request is under way there; None when it is not as it was seen.
        """
