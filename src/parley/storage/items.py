"""What a store keeps of responses and conversations, item by item.

The same promises hold as for the rest of the store: see `parley.storage.contract`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

__all__ = ["ItemBody", "ItemPage", "ItemStore", "ResponseItems", "instructs"]

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
