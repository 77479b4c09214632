"""What is said into a room before the sync has told of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from parley.surfaces.matrix.syncing import Batch, Syncing
from tests.gateway.house import House
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import an_agent
from tests.surfaces.matrix.person import Person


async def test_nothing_goes_into_an_encrypted_room_as_plain_text_while_the_sync_is_slow(
    synapse: Synapse, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Syncing._sync

    async def slow(self: Syncing, since: str | None, **more: Any) -> Batch:
        batch = await asked(self, since, **more)
        if batch.invites:  # the one after it, which tells of the room, is late
            monkeypatch.setattr(Syncing, "_sync", late)
        return batch

    async def late(self: Syncing, since: str | None, **more: Any) -> Batch:
        await asyncio.sleep(1.5)
        return await asked(self, since, **more)

    monkeypatch.setattr(Syncing, "_sync", slow)
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Ann") as ann:
        room = await ann.create_dm(agent.user_id, encrypted=True)
        hello = await ann.wait_for_text(agent.user_id, "!help", room_id=room)
        assert hello.encrypted
