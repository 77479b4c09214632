"""An agent on Matrix as people meet it: invited, greeted, spoken to, answered."""

from __future__ import annotations

from tests.gateway.house import House
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import an_agent
from tests.surfaces.matrix.person import Person


async def test_whoever_invites_it_gets_a_space_with_a_chat_and_answers_in_both_rooms(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        dm = await alice.create_dm(agent.user_id)
        await alice.wait_for_member(dm, agent.user_id)
        await alice.wait_for_text(agent.user_id, "!help", room_id=dm)

        space = await alice.wait_for_invite()
        chat = await alice.wait_for_invite(apart_from=[space])
        await alice.join(space)
        await alice.join(chat)
        assert {alice.client.rooms[each].room_type for each in (space, chat)} == {"m.space", ""}
        room = chat if alice.client.rooms[space].room_type == "m.space" else space

        await alice.send(dm, "hello in the direct room")
        await alice.wait_for_text(agent.user_id, "hello in the direct room", room_id=dm)
        await alice.send(room, "hello in the first chat")
        answer = await alice.wait_for_text(agent.user_id, "hello in the first chat", room_id=room)
        assert alice.is_encrypted(room)
        assert answer.kind == "m.text"
