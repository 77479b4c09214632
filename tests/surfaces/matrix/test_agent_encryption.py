"""Encrypted rooms as people meet them: other devices, strict clients, keys that come late."""

from __future__ import annotations

import asyncio

import pytest

from parley.surfaces.matrix.connection import part
from parley.surfaces.matrix.undecrypted import Unread
from tests.gateway.house import House
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import Agent, an_agent, meet
from tests.surfaces.matrix.person import Person
from tests.surfaces.matrix.strict_person import strict_person
from tests.waiting import until

MAY_BE_PLAIN = {"m.reaction", "m.room.redaction"}


async def sent_by(person: Person, agent: Agent, room: str) -> list[str]:
    """The kinds of all events of the agent in a room that are no state, as the server has them."""
    path = f"/v3/rooms/{part(room)}/messages?dir=b&limit=500"
    told = await person.call("GET", path)
    return [
        str(event["type"])
        for event in told["chunk"]
        if event["sender"] == agent.user_id and "state_key" not in event
    ]


async def test_nothing_is_ever_said_in_the_clear_and_a_later_device_reads_on(
    synapse: Synapse, house: House, stage: Stage
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=True)
        stage.then(Reply(text="One. Two. " * 20, chunks=8, chunk_delay=0.08))
        await alice.send(room, "in secret")
        first = await alice.wait_for_text(agent.user_id, "One. Two.", room_id=room)
        await until(lambda: not first.text.endswith("…"))
        assert (first.encrypted, first.edits > 0) == (True, True)

        async with Person.on(synapse, alice.account, new_device=True) as phone:
            await phone.wait_for_room(room)
            await alice.send(room, "from the old device")
            heard = await phone.wait_for_text(agent.user_id, "echo: from the old", room_id=room)
            assert heard.encrypted
            await phone.send(room, "from the new device")
            await phone.wait_for_text(agent.user_id, "echo: from the new device", room_id=room)
            await alice.wait_for_text(agent.user_id, "echo: from the new device", room_id=room)

        # In a plain room that is encrypted later.
        plain = await meet(agent, alice)
        await alice.send(plain, "in the open")
        await alice.wait_for_text(agent.user_id, "echo: in the open", room_id=plain)
        sealed = {"algorithm": "m.megolm.v1.aes-sha2"}
        await alice.set_state(plain, "m.room.encryption", sealed)
        await until(lambda: alice.is_encrypted(plain))
        await alice.send(plain, "and now?")
        now = await alice.wait_for_text(agent.user_id, "echo: and now?", room_id=plain)
        assert now.encrypted
        assert set(await sent_by(alice, agent, room)) <= {"m.room.encrypted", *MAY_BE_PLAIN}

        # What a server might have written in someone's name is not heard.
        asked = house.model.total
        path = f"/v3/rooms/{part(room)}/send/m.room.message/forged"
        await alice.call("PUT", path, {"msgtype": "m.text", "body": "do it"})
        await alice.send(room, "did you hear?")
        await alice.wait_for_text(agent.user_id, "echo: did you hear?", room_id=room)
        assert house.model.total == asked + 1
        assert "do it" not in " ".join(house.words())


async def test_in_an_encrypted_group_those_who_are_there_read_and_no_others(
    synapse: Synapse, house: House
) -> None:
    async with (
        an_agent(synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
        Person.on(synapse, name="Bob") as bob,
    ):
        room = await alice.create_room(invite=[bob.user_id, agent.user_id], encrypted=True)
        await bob.wait_for_invite()
        await bob.join(room)
        for user in (agent.user_id, bob.user_id):
            await alice.wait_for_member(room, user)
        both = (alice, bob)
        says = [
            each.send(room, f"{each.user_id} says {number};", mentions=[agent.user_id])
            for number in range(3)
            for each in both
        ]
        await asyncio.gather(*says)
        for reader in both:
            for each in both:
                for number in range(3):
                    words = f"{each.user_id} says {number};"
                    answer = await reader.wait_for_text(agent.user_id, words, room_id=room)
                    assert answer.encrypted
        await bob.leave(room)
        await until(lambda: bob.user_id not in alice.client.rooms[room].users)
        await alice.send(room, "only us", mentions=[agent.user_id])
        await alice.wait_for_text(agent.user_id, "echo: only us", room_id=room)
        olm = bob.client.olm
        assert olm is not None
        path = f"/v3/rooms/{part(room)}/messages?dir=b&limit=1"
        (last,) = (await alice.call("GET", path))["chunk"]
        session = last["content"]["session_id"]
        key = last["content"]["sender_key"]
        assert olm.inbound_group_store.get(room, key, session) is None


async def test_what_cannot_be_read_is_told_of_and_answered_when_its_key_comes(
    synapse: Synapse, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = Unread.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "notice_after", 0.3)
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=True)
        lost = await alice.send_unreadable(room, "the lost words")
        notice = await alice.wait_for_text(agent.user_id, "I cannot read this", room_id=room)
        assert (notice.reply_to, notice.kind, notice.encrypted) == (lost, "m.notice", True)
        assert house.model.total == 0
        await alice.share_key(room)
        await alice.wait_for_text(agent.user_id, "echo: the lost words", room_id=room)
        await alice.send(room, "and on")
        await alice.wait_for_text(agent.user_id, "echo: and on", room_id=room)
        assert house.model.total == 2

        # Its key comes while the agent is away.
        await alice.send_unreadable(room, "lost again")
        assert house.store is not None
        async with asyncio.timeout(60):
            while not await house.store.marks("matrix:unread:"):
                await asyncio.sleep(0.01)
        await agent.close()
        await alice.share_key(room)
        await agent.open()
        await alice.wait_for_text(agent.user_id, "echo: lost again", room_id=room)


async def test_a_client_that_trusts_only_cross_signed_devices_talks_with_it(
    synapse: Synapse, house: House
) -> None:
    pytest.importorskip("mautrix.crypto")
    async with (
        an_agent(synapse, house, spaces=False) as agent,
        strict_person(synapse) as stern,
    ):
        surface = agent.surface
        assert surface is not None
        device = surface.serving._connection.account.device_id
        keys = house.profile.home / "matrix" / "cross_signing.json"
        await until(lambda: keys.is_file() and surface.fault is None)
        room = await stern.make_room(agent.user_id)
        await until(lambda: any(each.room_id == room for each in stern.heard))
        await stern.send_encrypted(room, "can you read me?")
        heard = await stern.hears("echo: can you read me?", seconds=60)
        assert heard.trust == await stern.trust_of(agent.user_id, device) == "cross-signed-tofu"
