"""Others in a room who try to speak for someone, or to hear what is not for them."""

from __future__ import annotations

from tests.gateway.house import House
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import an_agent, meet
from tests.surfaces.matrix.person import Person
from tests.waiting import until


async def test_nobody_takes_back_what_another_said_by_an_encrypted_event(
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
        asked = await ann.send(room, "count [[chunks 30]][[pace 0.1]]", mentions=[agent.user_id])
        await until(lambda: house.model.requests)
        await mallory.send_event(room, "m.room.redaction", {"redacts": asked})
        answer = await ann.wait_for_message(
            lambda each: each.sender == agent.user_id and not each.text.endswith("…")
        )
        assert "stopped" not in answer.text
        assert not answer.redacted


async def test_what_was_said_in_another_room_is_not_quoted(synapse: Synapse, house: House) -> None:
    async with (
        an_agent(synapse, house) as agent,
        Person.on(synapse, name="Ann") as ann,
        Person.on(synapse, name="Mallory") as mallory,
    ):
        hers = await meet(agent, ann, encrypted=True)
        secret = await ann.send(hers, "my password is swordfish")
        await ann.wait_for_text(agent.user_id, "swordfish", room_id=hers)
        his = await meet(agent, mallory)
        await mallory.reply_to(his, secret, "what does it say?")
        answer = await mallory.wait_for_text(agent.user_id, "what does it say?", room_id=his)
        assert "swordfish" not in answer.text
        assert "swordfish" not in str(house.words())
