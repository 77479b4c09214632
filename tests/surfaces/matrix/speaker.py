"""An account of ours that only speaks: what the surface sends by, without the rest of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parley.gateway.live import LiveEvent, TurnEnded, TurnStarted
from parley.protocol import Attachment, SessionSource, TurnEvent
from parley.storage.contract import Delivery
from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.connection import Connection
from parley.surfaces.matrix.outgoing import Outgoing
from parley.surfaces.matrix.pace import Pace
from parley.surfaces.matrix.previews import Previews
from tests.servers.synapse import Account as Registered
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.person import Person
from tests.waiting import until

__all__ = ["SESSION", "KeptMarks", "Speaker", "a_delivery", "a_source", "talking"]

SESSION = "s-test"


class KeptMarks:
    """Marks in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    async def mark(self, name: str) -> str | None:
        return self.kept.get(name)

    async def marks(self, prefix: str) -> dict[str, str]:
        return {name: text for name, text in self.kept.items() if name.startswith(prefix)}

    async def put_marks(self, marks: Mapping[str, str | None]) -> None:
        for name, value in marks.items():
            if value is None:
                self.kept.pop(name, None)
            else:
                self.kept[name] = value


def a_source(room_id: str, **more: Any) -> SessionSource:
    return SessionSource("matrix", chat_id=room_id, **more)


def a_delivery(
    source: SessionSource,
    text: str,
    *,
    turn: int | None = None,
    dedupe: str = "",
    kind: str = "reply",
    answers: tuple[str, ...] = (),
    attachments: tuple[Attachment, ...] = (),
    session: str = SESSION,
) -> Delivery:
    """The reply of a turn, or something else that has a name."""
    return Delivery(
        id=1,
        lane="lane",
        turn=turn,
        dedupe=dedupe or f"turn:{turn}",
        source=source,
        text=text,
        kind=kind,
        answers=answers,
        state="sending",
        attempts=0,
        at=0.0,
        session=session,
        attachments=attachments,
    )


class Speaker:
    """One process of ours: it has a connection, and it shows and sends."""

    def __init__(self, connection: Connection, *, edit_seconds: float) -> None:
        self.connection = connection
        self.marks = KeptMarks()
        self.previews = Previews(connection, edit_seconds=edit_seconds, pace=Pace())
        self.outgoing = Outgoing(connection, self.previews, marks=self.marks)
        self._number = 0

    @classmethod
    @asynccontextmanager
    async def on(
        cls, synapse: Synapse, account: Registered, keys: Path, *, edit_seconds: float = 0.1
    ) -> AsyncIterator[Speaker]:
        connection = Connection(
            Account(synapse.url, account.user_id, account.device_id, account.token, "secret"),
            keys,
        )
        await connection.open()
        nio = connection.nio
        await nio.sync(timeout=0, full_state=True)
        if nio.should_upload_keys:
            await nio.keys_upload()
        following = asyncio.create_task(nio.sync_forever(timeout=5000))
        speaker = cls(connection, edit_seconds=edit_seconds)
        try:
            yield speaker
        finally:
            await speaker.previews.close()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await connection.close()

    async def join(self, room_id: str) -> None:
        await self.connection.call("POST", f"/v3/join/{room_id}", {})
        await until(lambda: room_id in self.connection.nio.rooms)

    def show(
        self,
        source: SessionSource,
        turn: int,
        *events: TurnEvent | TurnStarted | TurnEnded,
        answers: tuple[str, ...] = (),
    ) -> None:
        for event in events:
            self._number += 1
            live = LiveEvent(
                self._number, "lane", turn, source, event, session=SESSION, answers=answers
            )
            self.previews.show(live, room_id=source.chat_id)

    async def deliver(self, delivery: Delivery) -> str:
        return await self.outgoing.deliver(delivery, room_id=delivery.source.chat_id)


@asynccontextmanager
async def talking(
    synapse: Synapse,
    tmp_path: Path,
    *,
    encrypted: bool = False,
    edit_seconds: float = 0.1,
) -> AsyncIterator[tuple[Speaker, Person, str]]:
    """Someone and an account of ours in a room for two."""
    account = await asyncio.to_thread(synapse.register)
    async with (
        Person.on(synapse) as person,
        Speaker.on(synapse, account, tmp_path / "keys", edit_seconds=edit_seconds) as speaker,
    ):
        room_id = await person.create_dm(account.user_id, encrypted=encrypted)
        await speaker.join(room_id)
        await person.wait_for_member(room_id, account.user_id)
        yield speaker, person, room_id
