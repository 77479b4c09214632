"""An agent's side of Matrix for tests of its parts: a real connection, synced by hand."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from nio import SyncResponse

from parley.protocol import SessionSource
from parley.storage.people import Chat
from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.connection import Connection
from parley.surfaces.matrix.room_names import RoomNames
from parley.surfaces.matrix.rooms import Rooms
from tests.servers import synapse as servers
from tests.surfaces.matrix.door import Door

__all__ = ["Bot", "a_bot", "a_chat"]


class Bot:
    def __init__(self, connection: Connection, door: Door) -> None:
        self.connection = connection
        self.door = door
        self.rooms = Rooms(connection, door, RoomNames(door))

    @property
    def user_id(self) -> str:
        return self.connection.user_id

    async def sync(self, *, seconds: float = 0.0) -> dict[str, Any]:
        """The rooms of the next answer, as the server wrote it; nio has then taken it in."""
        nio = self.connection.nio
        query = {"timeout": str(int(seconds * 1000))}
        query |= {"since": nio.next_batch} if nio.next_batch else {"full_state": "true"}
        told = await self.connection.call("GET", "/v3/sync", query=query)
        parsed = SyncResponse.from_dict(deepcopy(told))
        assert isinstance(parsed, SyncResponse)
        await nio.receive_response(parsed)
        rooms: dict[str, Any] = told.get("rooms", {})
        return rooms

    async def joined_rooms(self) -> list[str]:
        told = await self.connection.call("GET", "/v3/joined_rooms")
        return list(told["joined_rooms"])


@asynccontextmanager
async def a_bot(
    synapse: servers.Synapse,
    home: Path,
    *,
    account: servers.Account | None = None,
    door: Door | None = None,
) -> AsyncIterator[Bot]:
    """With the `account` and the `door` of an earlier one it is the same bot after a restart."""
    known = account
    if known is None:
        known = await asyncio.to_thread(synapse.register, display_name="Parley")
    connection = Connection(
        Account(synapse.url, known.user_id, known.device_id, known.token, "pickle"), home / "keys"
    )
    await connection.open()
    bot = Bot(connection, door or Door())
    await bot.rooms.load()
    await bot.sync()
    await bot.sync()  # a server may repeat an old answer to the first one for a while
    try:
        yield bot
    finally:
        await connection.close()


def a_chat(person: str, number: int = 1, **more: Any) -> Chat:
    kept: dict[str, Any] = {"name": None, "source": None, "archived": False} | more
    source: SessionSource | None = kept["source"]
    return Chat(
        person=f"matrix:{person}",
        number=number,
        name=kept["name"],
        lane=secrets.token_hex(4) if source else None,
        session=None,
        source=source,
        archived=kept["archived"],
        created_at=0.0,
    )
