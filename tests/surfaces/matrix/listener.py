"""Our end of the line, for tests: a connection that follows the homeserver, batch by batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.connection import Connection, part
from parley.surfaces.matrix.syncing import Batch, Syncing
from tests.servers.synapse import Account as Registered
from tests.servers.synapse import Synapse
from tests.waiting import until

__all__ = ["Listener", "connected"]


@asynccontextmanager
async def connected(
    synapse: Synapse, home: Path, registered: Registered | None = None
) -> AsyncIterator[Connection]:
    """A connection of a new account, or of this one; its keys are in `home`."""
    if registered is None:
        registered = await asyncio.to_thread(synapse.register)
    connection = Connection(
        Account(
            homeserver=synapse.url,
            user_id=registered.user_id,
            device_id=registered.device_id,
            access_token=registered.token,
            pickle_key="a key of the tests",
        ),
        home / "keys",
    )
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


class Listener:
    """Takes batches in as a surface does, and keeps them for the test to look at."""

    def __init__(self, connection: Connection, *, poll_seconds: float = 5.0) -> None:
        self.connection = connection
        self.syncing = Syncing(connection, poll_seconds=poll_seconds)
        self.batches: list[Batch] = []
        self.states: list[str | None] = []
        self.syncing.on_state(self.states.append)

    @asynccontextmanager
    async def listening(self, since: str | None = None) -> AsyncIterator[Listener]:
        following = asyncio.create_task(self._follow(since))
        try:
            yield self
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self.syncing.close()

    async def _follow(self, since: str | None) -> None:
        await self.syncing.bootstrap(since)
        async with aclosing(self.syncing.batches()) as batches:
            async for batch in batches:
                self.batches.append(batch)

    @property
    def since(self) -> str:
        return self.batches[-1].since

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [each for batch in self.batches for each in batch.events]

    def said(self, room_id: str | None = None) -> list[str]:
        """The text of all messages so far."""
        return [
            str(event["content"].get("body"))
            for room, event in self.events
            if event["type"] == "m.room.message" and room_id in {None, room}
        ]

    async def wait_for(self, fits: Callable[[Batch], object]) -> Batch:
        await until(lambda: any(map(fits, self.batches)))
        return next(batch for batch in self.batches if fits(batch))

    async def wait_for_said(self, text: str) -> dict[str, Any]:
        await until(lambda: text in self.said())
        return next(e for _, e in self.events if e["content"].get("body") == text)

    async def join(self, room_id: str) -> None:
        await self.connection.call("POST", f"/v3/rooms/{part(room_id)}/join", {})
