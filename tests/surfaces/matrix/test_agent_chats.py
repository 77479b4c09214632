"""Chats as people have them on Matrix: rooms that are made once, named, put away and apart."""

from __future__ import annotations

from typing import Any

from parley.surfaces.matrix.connection import part
from tests.gateway.house import House
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import Agent, an_agent, meet
from tests.surfaces.matrix.person import Person
from tests.waiting import until


def rooms_of(agent: Agent) -> set[str]:
    """All rooms that the agent is in, as the homeserver has it."""
    assert agent.surface is not None
    token = agent.surface.serving._connection.account.access_token
    told = agent.synapse.call("GET", "/_matrix/client/v3/joined_rooms", token=token)
    return set(told["joined_rooms"])


async def space_and_chat(person: Person) -> tuple[str, str]:
    """Follow the agent into the two rooms that it has made."""
    one = await person.wait_for_invite()
    other = await person.wait_for_invite(apart_from=[one])
    await person.join(one)
    await person.join(other)
    is_space = person.client.rooms[one].room_type == "m.space"
    return (one, other) if is_space else (other, one)


async def children(person: Person, space: str) -> set[str]:
    state: Any = await person.call("GET", f"/v3/rooms/{part(space)}/state")
    return {
        each["state_key"] for each in state if each["type"] == "m.space.child" and each["content"]
    }


async def room_name(person: Person, room: str) -> str:
    told = await person.call("GET", f"/v3/rooms/{part(room)}/state/m.room.name")
    return str(told["name"])


async def test_an_invitation_that_is_repeated_makes_nothing_twice(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        dm = await meet(agent, alice, preset="private_chat")
        space, chat = await space_and_chat(alice)
        assert rooms_of(agent) == {dm, space, chat}

        await alice.kick(dm, agent.user_id)
        await until(lambda: rooms_of(agent) == {space, chat})
        await alice.invite(dm, agent.user_id)
        await until(lambda: dm in rooms_of(agent))
        other = await meet(agent, alice)
        await alice.send(other, "and here?")
        await alice.wait_for_text(agent.user_id, "echo: and here?", room_id=other)
        await alice.send(dm, "still there?")
        await alice.wait_for_text(agent.user_id, "echo: still there?", room_id=dm)
        await alice.send(dm, "!start")
        told = await alice.wait_for_text(agent.user_id, chat, room_id=dm)
        assert told.kind == "m.notice"
        assert rooms_of(agent) == {dm, other, space, chat}
        assert alice.invites == {}


async def test_chats_are_made_listed_named_and_put_away(synapse: Synapse, house: House) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        await meet(agent, alice)
        space, first = await space_and_chat(alice)
        await alice.send(first, "a secret of the first chat")
        await alice.wait_for_text(agent.user_id, "echo: a secret", room_id=first)

        await alice.send(first, "!new Tea party")
        second = await alice.wait_for_invite()
        await alice.join(second)
        told = await alice.wait_for_text(agent.user_id, "A new chat: **C2** Tea party")
        assert (told.room_id, f"{second}?via=localhost" in told.text) == (first, True)
        assert await room_name(alice, second) == "Tea party"
        assert await children(alice, space) == {first, second}
        await alice.wait_for_text(agent.user_id, "This is **C2** Tea party", room_id=second)
        await alice.send(second, "the tea of the second")
        await alice.wait_for_text(agent.user_id, "echo: the tea", room_id=second)
        assert house.words() == ["the tea of the second"]

        await alice.send(second, "!chats")
        listed = await alice.wait_for_text(agent.user_id, "← here", room_id=second)
        lines = [line for line in listed.text.splitlines() if "C1" in line or "C2" in line]
        assert [first in lines[0], second in lines[1], "← here" in lines[1]] == [True] * 3

        await alice.send(second, "!rename Coffee")
        await alice.wait_for_text(agent.user_id, "C2 is now **Coffee**", room_id=second)
        assert await room_name(alice, second) == "Coffee"
        await alice.send(second, "more of it")
        await alice.wait_for_text(agent.user_id, "echo: more of it", room_id=second)
        assert house.words()[0] == "the tea of the second"

        await alice.send(second, "!archive")
        await alice.wait_for_text(agent.user_id, "**C2** Coffee is archived", room_id=second)
        assert await room_name(alice, second) == "Coffee (archived)"
        assert await children(alice, space) == {first}
        asked = house.model.total
        await alice.send(second, "is anyone there?")
        await until(lambda: len(_saying(alice, agent, second, "archived")) == 2)
        assert house.model.total == asked

        await alice.send(second, "!unarchive")
        await alice.wait_for_text(agent.user_id, "**C2** Coffee is open again", room_id=second)
        assert await children(alice, space) == {first, second}
        await alice.send(second, "and on we go")
        await alice.wait_for_text(agent.user_id, "echo: and on we go", room_id=second)
        assert house.words()[0] == "the tea of the second"
        assert "is anyone there?" not in " ".join(house.words())
        assert await room_name(alice, second) == "Coffee"


def _saying(person: Person, agent: Agent, room: str, words: str) -> list[str]:
    said = person.from_sender(agent.user_id, room)
    return [each.text for each in said if words in each.text]


async def test_without_spaces_there_is_none_and_rooms_that_exist_do(
    synapse: Synapse, house: House
) -> None:
    async with (
        an_agent(synapse, house, spaces=False, encrypt=False) as agent,
        Person.on(synapse, name="Alice") as alice,
    ):
        plain = await alice.create_room(invite=[agent.user_id], name="An old room")
        await alice.wait_for_text(agent.user_id, "!help", room_id=plain)
        await alice.send(plain, "hello there")
        await alice.wait_for_text(agent.user_id, "echo: hello there", room_id=plain)
        assert rooms_of(agent) == {plain}
        await alice.send(plain, "!new Second")
        chat = await alice.wait_for_invite()
        await alice.join(chat)
        assert alice.client.rooms[chat].room_type != "m.space"
        assert not alice.is_encrypted(chat)
        await alice.send(chat, "and in here")
        await alice.wait_for_text(agent.user_id, "echo: and in here", room_id=chat)
        assert rooms_of(agent) == {plain, chat}
        for room in rooms_of(agent):
            assert alice.client.rooms[room].room_type != "m.space"


async def test_two_peoples_chats_are_apart(synapse: Synapse, house: House) -> None:
    async with (
        an_agent(synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
        Person.on(synapse, name="Bob") as bob,
    ):
        await meet(agent, alice)
        await meet(agent, bob)
        space_a, chat_a = await space_and_chat(alice)
        space_b, chat_b = await space_and_chat(bob)
        assert len({space_a, chat_a, space_b, chat_b}) == 4
        await alice.send(chat_a, "Alice's own")
        await alice.wait_for_text(agent.user_id, "echo: Alice's own", room_id=chat_a)
        await bob.send(chat_b, "Bob's own")
        await bob.wait_for_text(agent.user_id, "echo: Bob's own", room_id=chat_b)
        assert house.words() == ["Bob's own"]
        await bob.send(chat_b, "!chats")
        listed = await bob.wait_for_text(agent.user_id, "← here", room_id=chat_b)
        assert (chat_a in listed.text, chat_b in listed.text) == (False, True)
        await bob.send(chat_b, f"!rename C1 {'x' * 500}")
        await bob.wait_for_text(agent.user_id, "characters", room_id=chat_b)
        assert await room_name(alice, chat_a) == "Chat 1"


async def test_who_left_their_chat_is_asked_back_into_the_same_room(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        dm = await meet(agent, alice)
        space, chat = await space_and_chat(alice)
        await alice.send(chat, "remember me")
        await alice.wait_for_text(agent.user_id, "echo: remember me", room_id=chat)
        await alice.leave(chat)
        await alice.send(dm, "/start")
        assert await alice.wait_for_invite() == chat
        await alice.join(chat)
        await alice.send(chat, "back again")
        await alice.wait_for_text(agent.user_id, "echo: back again", room_id=chat)
        assert house.words()[0] == "remember me"
        assert rooms_of(agent) == {dm, space, chat}
        await alice.send(dm, "/chats")
        await alice.wait_for_text(agent.user_id, "`!new [NAME]` opens another", room_id=dm)
        await alice.send(dm, "/archive C1")
        await alice.wait_for_text(agent.user_id, "is archived", room_id=dm)
        # A first chat again: the old one is put away.
        await alice.send(dm, "!start")
        again = await alice.wait_for_invite()
        assert again not in {dm, space, chat}


async def test_a_persons_own_room_is_a_chat_that_is_named_and_archived(
    synapse: Synapse, house: House
) -> None:
    async with (
        an_agent(synapse, house, spaces=False) as agent,
        Person.on(synapse, name="Alice") as alice,
    ):
        room = await meet(agent, alice)
        await alice.send(room, "hello")
        await alice.wait_for_text(agent.user_id, "echo: hello", room_id=room, seconds=40)
        assert not alice.invites
        await alice.send(room, "!rename Kitchen")
        await alice.wait_for_text(agent.user_id, "is now **Kitchen**", room_id=room, seconds=40)
        await until(lambda: alice.client.rooms[room].name == "Kitchen", seconds=20)
        await alice.send(room, "!archive")
        await alice.wait_for_text(agent.user_id, "is archived", room_id=room, seconds=40)
        await alice.send(room, "!chats")
        none = await alice.wait_for_text(agent.user_id, "`!chats all` lists", room_id=room)
        assert "Kitchen" not in none.text
        await alice.send(room, "!chats all")
        await alice.wait_for_text(agent.user_id, "Kitchen · archived", room_id=room, seconds=40)
        await alice.send(room, "!unarchive")
        await alice.wait_for_text(agent.user_id, "is open again", room_id=room, seconds=40)
        await alice.send(room, "still you?")
        await alice.wait_for_text(agent.user_id, "echo: still you?", room_id=room, seconds=40)
        assert "hello" in " ".join(house.words())
        assert not alice.invites
