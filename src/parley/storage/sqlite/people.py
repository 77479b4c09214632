"""What is kept of people, in the store on SQLite: each call one operation, or a read and one."""

from __future__ import annotations

import time
from collections.abc import Mapping

from parley.protocol import SessionSource
from parley.storage.people import Chat, User
from parley.storage.sqlite import chats, notes, rows, users
from parley.storage.sqlite.engine import Engine
from parley.storage.sqlite.queries import SQL

__all__ = ["SqlitePeople"]


class SqlitePeople:
    """The part of `SqliteStore` that keeps who people are, their chats, and surfaces' marks."""

    _engine: Engine

    # ── people ──

    async def get_or_create_user(
        self, external_id: str, platform: str, display_name: str | None = None
    ) -> User:
        name = None if display_name is None else rows.storable(display_name)
        known = await self._engine.read(lambda db: users.get(db, external_id, platform, name))
        if known is not None:
            return known
        return await self._engine.write(
            lambda db: users.welcome(db, external_id, platform, name, now=time.time())
        )

    async def users(self, *, limit: int = 100) -> list[User]:
        return await self._engine.read(lambda db: users.newest(db, limit=limit))

    async def person_settings(self, person: str) -> dict[str, str]:
        return await self._engine.read(lambda db: notes.settings(db, person))

    # ── chats ──

    async def open_chat(self, person: str, *, key: str, name: str | None = None) -> Chat:
        name = None if name is None else rows.storable(name)
        return await self._engine.write(
            lambda db: chats.open_one(db, person, key, name=name, now=time.time())
        )

    async def place_chat(self, person: str, number: int, source: SessionSource, lane: str) -> Chat:
        return await self._engine.write(
            lambda db: chats.place(db, person, number, source, lane, now=time.time())
        )

    async def chat_of_session(self, person: str, session: str) -> Chat:
        return await self._engine.write(
            lambda db: chats.of_session(db, person, session, now=time.time())
        )

    async def chats(self, person: str) -> list[Chat]:
        return await self._engine.read(lambda db: chats.of_person(db, person))

    async def chat_at(self, lane: str) -> Chat | None:
        return await self._engine.read(lambda db: chats.at(db, lane))

    async def unplaced_chats(self) -> list[Chat]:
        return await self._engine.glance(chats.unplaced)

    async def name_chat(self, person: str, number: int, name: str | None) -> bool:
        named = None if name is None else rows.storable(name)
        return await self._change("chat_name", person=person, number=number, name=named)

    async def archive_chat(self, person: str, number: int, *, archived: bool) -> bool:
        return await self._change("chat_archive", person=person, number=number, archived=archived)

    async def archived_lanes(self) -> list[str]:
        return await self._engine.glance(chats.archived_lanes)

    # ── marks ──

    async def mark(self, name: str) -> str | None:
        return await self._engine.glance(lambda db: notes.mark(db, name))

    async def marks(self, prefix: str) -> dict[str, str]:
        return await self._engine.glance(lambda db: notes.marks(db, prefix))

    async def put_marks(self, marks: Mapping[str, str | None]) -> None:
        await self._engine.write(lambda db: notes.put_marks(db, marks))

    async def _change(self, query: str, **values: object) -> bool:
        """One named statement; whether there was something to change."""
        return await self._engine.write(lambda db: db.execute(SQL[query], values).rowcount > 0)
