"""Conversations that programs made, in the store on SQLite: each call one operation."""

from __future__ import annotations

import time
from collections.abc import Mapping

from parley.storage.contract import RequestRecord
from parley.storage.items import ConversationChange, ConversationRecord, ItemBody
from parley.storage.sqlite import conversations
from parley.storage.sqlite.engine import Engine

__all__ = ["SqliteConversations"]


class SqliteConversations:
    """The part of `SqliteStore` that keeps conversations."""

    _engine: Engine

    async def create_conversation(
        self, record: ConversationRecord, change: ConversationChange
    ) -> RequestRecord | None:
        return await self._engine.write(
            lambda db: conversations.create(db, record, change, now=time.time())
        )

    async def conversation(self, id: str) -> ConversationRecord | None:
        return await self._engine.read(lambda db: conversations.get(db, id))

    async def note_conversation(self, id: str, metadata: Mapping[str, str]) -> bool:
        return await self._engine.write(lambda db: conversations.note(db, id, metadata))

    async def delete_conversation(self, record: ConversationRecord) -> bool:
        return await self._engine.write(
            lambda db: conversations.remove(db, record, now=time.time())
        )

    async def add_conversation_items(
        self, record: ConversationRecord, change: ConversationChange, *, most: int
    ) -> RequestRecord | bool:
        return await self._engine.write(
            lambda db: conversations.add_to(db, record, change, most=most, now=time.time())
        )

    async def conversation_item(self, conversation: str, id: str) -> ItemBody | None:
        return await self._engine.read(lambda db: conversations.item(db, conversation, id))

    async def conversation_instructions(self, conversation: str) -> list[ItemBody]:
        return await self._engine.read(lambda db: conversations.instructions(db, conversation))

    async def remove_conversation_item(
        self, record: ConversationRecord, id: str, left: ConversationChange
    ) -> bool | None:
        return await self._engine.write(
            lambda db: conversations.remove_item(db, record, id, left, now=time.time())
        )
