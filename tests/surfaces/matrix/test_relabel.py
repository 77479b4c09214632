"""A homeserver that gives an encrypted message to another sender."""

from __future__ import annotations

from parley.surfaces.matrix.connection import part
from parley.surfaces.matrix.receiving import open_event
from tests.gateway.house import House
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import an_agent
from tests.surfaces.matrix.person import Person


async def test_what_one_has_sealed_is_not_heard_as_the_word_of_another(
    synapse: Synapse, house: House
) -> None:
    async with (
        an_agent(synapse, house) as agent,
        Person.on(synapse, name="Ann") as ann,
        Person.on(synapse, name="Mallory") as mallory,
    ):
        room = await ann.create_room(
            invite=[agent.user_id, mallory.user_id], encrypted=True, name="all of us"
        )
        await mallory.join(room)
        await ann.wait_for_member(room, agent.user_id)
        said = await mallory.send(room, "hello", mentions=[agent.user_id])
        await mallory.wait_for_text(agent.user_id, "hello", room_id=room)
        assert agent.surface is not None
        connection = agent.surface.serving._connection
        raw = await connection.call("GET", f"/v3/rooms/{part(room)}/event/{part(said)}")
        assert open_event(connection.nio, room, raw)["content"]["body"] == "hello"
        forged = open_event(connection.nio, room, {**raw, "sender": ann.user_id})
        assert not forged["content"]
