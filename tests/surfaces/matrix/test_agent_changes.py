"""What people do besides writing: they edit, delete, throw out, leave, move and rename."""

from __future__ import annotations

import asyncio

import pytest

from parley.surfaces.matrix.connection import part
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, let_go, run, waiting
from tests.servers.scripted_model import Reply
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import Agent, an_agent, meet
from tests.surfaces.matrix.person import Message, Person
from tests.waiting import until

both = pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])


def token_of(agent: Agent) -> str:
    assert agent.surface is not None
    return agent.surface.serving._connection.account.access_token


async def until_busy(agent: Agent, person: Person, room: str, word: str) -> None:
    """Until all that was said before is known to the agent."""
    await person.send(room, "!status")
    await person.wait_for_text(agent.user_id, word, room_id=room)


@both
async def test_a_message_that_waits_may_be_edited_or_deleted(
    synapse: Synapse, house: House, scenes: Scenes, encrypted: bool
) -> None:
    scenes.when("work", run(waiting("go")), Reply(text="That was it."))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=encrypted)
        await alice.send(room, "work")
        await alice.wait_for_text(agent.user_id, "terminal", room_id=room)
        wrong = await alice.send(room, "the wrong words")
        await alice.edit(room, wrong, "the right words")
        gone = await alice.send(room, "a thing to be deleted")
        await alice.redact(room, gone)
        await until_busy(agent, alice, room, "one running")
        let_go(house, "go")
        await alice.wait_for_text(agent.user_id, "heard: the right words", room_id=room)
        heard = " ".join(house.words())
        assert ("wrong" in heard, "deleted" in heard) == (False, False)

        # What is answered stays answered.
        answered = await alice.send(room, "the old question")
        await alice.wait_for_text(agent.user_id, "heard: the old question", room_id=room)
        asked = house.model.total
        await alice.edit(room, answered, "a new question")
        await alice.redact(room, wrong)
        await alice.send(room, "the next one")
        await alice.wait_for_text(agent.user_id, "heard: the next one", room_id=room)
        assert house.model.total == asked + 1
        assert "a new question" not in " ".join(house.words())


async def test_deleting_the_question_ends_its_answer(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    scenes.when("a long story", Reply(text="Once. " * 300, chunks=300, chunk_delay=0.05))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice)
        question = await alice.send(room, "a long story")
        running = await alice.wait_for_text(agent.user_id, "Once. Once.", room_id=room)
        await alice.redact(room, question)
        await house.model.until(lambda model: model.aborted == 1)
        await until(lambda: running.redacted or running.text.endswith("— stopped"))
        await alice.send(room, "something else")
        await alice.wait_for_text(agent.user_id, "heard: something else", room_id=room)


@both
async def test_a_reply_waits_while_the_agent_is_thrown_out(
    synapse: Synapse, house: House, scenes: Scenes, encrypted: bool
) -> None:
    scenes.when("work", run(waiting("go")), Reply(text="It is done."))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=encrypted, preset="private_chat")
        await alice.send(room, "work")
        running = await alice.wait_for_text(agent.user_id, "terminal", room_id=room)
        await alice.kick(room, agent.user_id)
        assert agent.surface is not None
        serving = agent.surface.serving
        await until(lambda: serving._rooms.is_out(room))
        let_go(house, "go")
        assert house.gateway is not None
        async with asyncio.timeout(60):
            while (await house.gateway.status()).profiles[0].undelivered != 1:
                await asyncio.sleep(0.01)
        await until(lambda: not serving._typing._rooms)  # or it would type for ever
        await alice.invite(room, agent.user_id)
        answer = await alice.wait_for_text(agent.user_id, "It is done.", room_id=room)
        assert (answer.text, answer.event_id) == ("It is done.", running.event_id)
        await alice.send(room, "welcome back")
        await alice.wait_for_text(agent.user_id, "heard: welcome back", room_id=room)
        assert "work" in house.words()[0]
        said = [each.text for each in alice.from_sender(agent.user_id, room)]
        assert sum("It is done." in text for text in said) == 1


async def test_a_reply_waits_while_the_agent_may_not_speak(synapse: Synapse, house: House) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, preset="private_chat")
        await alice.set_state(room, "m.room.power_levels", {"events_default": 50})
        await alice.send(room, "are you there?")
        assert house.gateway is not None
        async with asyncio.timeout(60):
            while (await house.gateway.status()).profiles[0].undelivered != 1:
                await asyncio.sleep(0.01)
        assert house.store is not None
        async with asyncio.timeout(60):
            while not await house.store.marks("matrix:parked:"):
                await asyncio.sleep(0.01)
        await alice.set_state(room, "m.room.power_levels", {"events_default": 0})
        await alice.wait_for_text(agent.user_id, "are you there?", room_id=room)
        said = [each.text for each in alice.from_sender(agent.user_id, room)]
        assert len([text for text in said if "are you there?" in text]) == 1


async def test_a_room_that_everybody_left_is_left(synapse: Synapse, house: House) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice)
        await alice.leave(room)

        def is_left() -> bool:
            path = "/_matrix/client/v3/joined_rooms"
            joined = synapse.call("GET", path, token=token_of(agent))["joined_rooms"]
            return room not in joined

        await until(is_left)
        other = await meet(agent, alice)
        await alice.send(other, "here I am")
        await alice.wait_for_text(agent.user_id, "echo: here I am", room_id=other)


@both
async def test_a_conversation_goes_on_in_the_room_that_replaces_its_own(
    synapse: Synapse, house: House, encrypted: bool
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        old = await meet(agent, alice, encrypted=encrypted, room_version="10")
        await alice.send(old, "remember the milk")
        await alice.wait_for_text(agent.user_id, "echo: remember the milk", room_id=old)
        path = f"/v3/rooms/{part(old)}/upgrade"
        new = str((await alice.call("POST", path, {"new_version": "11"}))["replacement_room"])
        await alice.wait_for_room(new)
        await alice.invite(new, agent.user_id)
        await alice.wait_for_member(new, agent.user_id)
        await alice.send(new, "what was it?")
        answer = await alice.wait_for_text(agent.user_id, "echo: what was it?", room_id=new)
        assert answer.encrypted is encrypted
        assert house.words()[0] == "remember the milk"
        # And after a restart.
        await agent.close()
        await agent.open()
        await alice.send(new, "still?")
        await alice.wait_for_text(agent.user_id, "echo: still?", room_id=new)
        assert house.words()[0] == "remember the milk"
        assert agent.surface is not None
        assert agent.surface.fault is None


async def test_an_answer_that_is_made_while_its_room_is_replaced_comes_into_the_new_one(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    for word in ("first", "second"):
        scenes.when(word, run(waiting(f"go-{word}")), Reply(text=f"The {word} is done."))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        old = await meet(agent, alice, encrypted=True, room_version="10")
        root = await alice.send(old, "the first")
        running = await alice.wait_for_text(agent.user_id, "terminal", room_id=old)
        await alice.in_thread(old, root, "the second")
        await alice.wait_for_message(lambda each: each.thread == root and "term" in each.text)
        path = f"/v3/rooms/{part(old)}/upgrade"
        new = str((await alice.call("POST", path, {"new_version": "11"}))["replacement_room"])
        await alice.wait_for_room(new)
        await alice.invite(new, agent.user_id)
        assert agent.surface is not None
        serving = agent.surface.serving
        await until(lambda: serving._rooms.names.current_of(old) == new)
        for word in ("first", "second"):
            let_go(house, f"go-{word}")
            await whole(alice, agent, f"The {word} is done.", new)
        await until(lambda: not serving._typing._rooms)
        await until(lambda: running.redacted)


async def test_an_answer_whose_beginning_was_deleted_is_said_again(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    scenes.when("work", run(waiting("go")), Reply(text="It is done."))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=True)
        await alice.send(room, "work")
        running = await alice.wait_for_text(agent.user_id, "terminal", room_id=room)
        await alice.redact(room, running.event_id)
        await until_busy(agent, alice, room, "one running")
        let_go(house, "go")
        answer = await whole(alice, agent, "It is done.", room)
        assert answer.event_id != running.event_id


async def whole(person: Person, agent: Agent, text: str, room: str) -> Message:
    """The message that says just this."""
    return await person.wait_for_message(
        lambda each: each in person.from_sender(agent.user_id, room) and each.text == text
    )


async def test_other_names_are_followed(synapse: Synapse, house: House) -> None:
    async with (
        an_agent(synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
        Person.on(synapse, name="Bob") as bob,
    ):
        dm = await meet(agent, alice)
        room = await alice.create_room(invite=[bob.user_id, agent.user_id])
        await bob.wait_for_invite()
        await bob.join(room)
        await alice.wait_for_member(room, agent.user_id)
        await alice.send(room, "Ferdinand, are you here?", mentions=None)
        await alice.send(dm, "hello")
        await alice.wait_for_text(agent.user_id, "echo: hello", room_id=dm)
        assert (await _names(house))[alice.user_id] == "Alice"

        path = f"/v3/profile/{part(agent.user_id)}/displayname"
        name = {"displayname": "Ferdinand"}
        synapse.call("PUT", f"/_matrix/client{path}", name, token=token_of(agent))
        await until(lambda: alice.client.rooms[room].user_name(agent.user_id) == "Ferdinand")
        await alice.send(room, "Ferdinand, are you there?", mentions=None)
        await alice.wait_for_text(agent.user_id, "echo: are you there?", room_id=room)
        assert house.model.total == 2

        path = f"/v3/profile/{part(alice.user_id)}/displayname"
        await alice.call("PUT", path, {"displayname": "Alicia"})
        await until(lambda: alice.client.rooms[dm].user_name(alice.user_id) == "Alicia")
        await alice.send(dm, "who am I?")
        await alice.wait_for_text(agent.user_id, "echo: who am I?", room_id=dm)
        assert (await _names(house))[alice.user_id] == "Alicia"


async def _names(house: House) -> dict[str, str | None]:
    assert house.store is not None
    return {user.external_id: user.display_name for user in await house.store.users()}
