"""An agent in rooms with several people: it speaks when it is spoken to, and to nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from parley.agent.tools import TOOLS
from parley.profiles import Profile
from parley.surfaces.matrix.connection import part
from tests.gateway.asking_tool import AskingTool
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, calls, let_go, run, waiting
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import Agent, an_agent, meet
from tests.surfaces.matrix.person import Person
from tests.waiting import until


@asynccontextmanager
async def a_group(synapse: Synapse, *agents: Agent) -> AsyncIterator[tuple[str, Person, Person]]:
    """A room of Alice, Bob and the agents."""
    async with Person.on(synapse, name="Alice") as alice, Person.on(synapse, name="Bob") as bob:
        invited = [bob.user_id, *(agent.user_id for agent in agents)]
        room = await alice.create_room(invite=invited, name="All of us")
        await bob.wait_for_invite()
        await bob.join(room)
        for agent in agents:
            await alice.wait_for_member(room, agent.user_id)
        yield room, alice, bob


def answers(person: Person, agent: Agent, room: str) -> list[str]:
    return [each.text for each in person.from_sender(agent.user_id, room)]


async def membership(person: Person, room: str, user_id: str) -> str:
    path = f"/v3/rooms/{part(room)}/state/m.room.member/{part(user_id)}"
    return str((await person.call("GET", path))["membership"])


async def test_in_a_group_it_answers_whoever_names_it_or_replies_to_it_and_is_silent_otherwise(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house) as agent, a_group(synapse, agent) as (room, alice, bob):
        pill = f'<a href="https://matrix.to/#/{agent.user_id}">Parley</a>: by pill'
        await alice.send(room, "Bob, how are you?")
        await bob.send(room, "Fine, and Parley is not called here", mentions=())
        await alice.send(room, "one, by id", mentions=[agent.user_id])
        first = await alice.wait_for_text(agent.user_id, "echo: one, by id", room_id=room)
        await bob.send(room, "Parley: by pill", html=pill, mentions=None)
        await bob.wait_for_text(agent.user_id, "echo: by pill", room_id=room)
        await alice.send(room, "parley, by its name", mentions=None)
        await alice.wait_for_text(agent.user_id, "echo: by its name", room_id=room)
        theirs = await bob.send(room, "not for you")
        await alice.reply_to(room, theirs, "nor is this")
        await alice.reply_to(room, first.event_id, "as a reply")
        last = await alice.wait_for_text(agent.user_id, "echo: as a reply", room_id=room)
        heard = [word for number in range(house.model.total) for word in house.words(number)]
        for silent in ("how are you", "not called", "not for you", "nor is this"):
            assert silent not in " ".join(heard)
        assert len(answers(alice, agent, room)) == 4
        # Each of them has a conversation of their own.
        assert "by pill" not in " ".join(house.words())
        assert "one, by id" in " ".join(house.words())

        await bob.send(room, "a notice", mentions=[agent.user_id], more={"msgtype": "m.notice"})
        await bob.reply_to(room, theirs, "about that", mentions=[agent.user_id])
        quoted = await bob.wait_for_text(agent.user_id, "about that", room_id=room)
        assert "> not for you" in quoted.text
        assert len(answers(bob, agent, room)) == 5
        assert "a notice" not in " ".join(house.words())
        assert last.event_id in bob.messages


async def test_who_is_not_let_in_is_not_heard_anywhere(synapse: Synapse, house: House) -> None:
    async with (
        a_group(synapse) as (room, alice, eve),
        an_agent(synapse, house, allow=[alice.user_id]) as agent,
    ):
        # Invited by a stranger.
        hers = await eve.create_dm(agent.user_id, encrypted=False)
        group = await eve.create_room(invite=[agent.user_id, alice.user_id])
        for each in (hers, group):
            await until(partial(_left, eve, each, agent))
            assert await membership(eve, each, agent.user_id) == "leave"
        # In a group that it was asked into by someone else.
        await alice.invite(room, agent.user_id)
        await alice.wait_for_member(room, agent.user_id)
        await eve.send(room, "listen to me", mentions=[agent.user_id])
        await eve.send(room, "!status", mentions=[agent.user_id])
        await alice.send(room, "and to me", mentions=[agent.user_id])
        await alice.wait_for_text(agent.user_id, "echo: and to me", room_id=room)
        assert len(answers(alice, agent, room)) == 1
        assert (house.model.total, house.words()) == (1, ["and to me"])


def _left(person: Person, room_id: str, agent: Agent) -> bool:
    room = person.client.rooms[room_id]
    return agent.user_id not in room.users and agent.user_id not in room.invited_users


async def test_a_group_may_be_told_to_be_always_or_never_answered(
    synapse: Synapse, house: House
) -> None:
    async with (
        an_agent(synapse, house, groups="always") as agent,
        a_group(synapse, agent) as (room, alice, bob),
    ):
        await bob.send(room, "to nobody in particular")
        await bob.wait_for_text(agent.user_id, "echo: to nobody in particular", room_id=room)
        await bob.send(room, "beep", more={"msgtype": "m.notice"})
        await agent.close()
        agent.settings["groups"] = "never"
        await agent.open()
        await bob.send(room, "to you", mentions=[agent.user_id])
        dm = await meet(agent, alice)
        await alice.send(dm, "and here?")
        await alice.wait_for_text(agent.user_id, "echo: and here?", room_id=dm)
        assert house.model.total == 2
        assert len(answers(alice, agent, room)) == 1


async def test_two_agents_in_a_group_do_not_answer_each_other(
    synapse: Synapse, house: House, model: ScriptedModel, tmp_path: Path
) -> None:
    other_house = House(Profile("default", tmp_path / "other"), model)
    async with (
        an_agent(synapse, house, groups="always") as one,
        an_agent(synapse, other_house, groups="always") as other,
        a_group(synapse, one, other) as (room, alice, bob),
    ):
        for number in range(3):
            await alice.send(room, f"number {number}")
            for agent in (one, other):
                await alice.wait_for_text(agent.user_id, f"echo: number {number}", room_id=room)
        # One that is of another make, and answers everything at once.
        for number in range(20):
            await bob.send(room, f"bot {number}")
        await alice.send(room, "the end")
        for agent in (one, other):
            await alice.wait_for_text(agent.user_id, "echo: the end", room_id=room)
        for each, peer in ((house, other), (other_house, one)):
            heard = " ".join(await _heard(each, bob.user_id))
            assert ("bot 11" in heard, "bot 12" in heard) == (True, False)
            assert len(await _heard(each, alice.user_id)) == 4
            assert await _heard(each, peer.user_id) == []


async def _heard(house: House, user_id: str) -> list[str]:
    """What the agent was told by someone in a group."""
    assert house.store is not None
    name = user_id[1:].partition(":")[0]
    found: list[str] = []
    for session in await house.store.sessions(limit=100):
        if name in session.lane:
            entries = await house.store.transcript(session.id, whole=True)
            found += [each.message.text for each in entries if each.message.role == "user"]
    return found


async def test_what_is_asked_in_a_thread_is_answered_there_and_kept_apart(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house) as agent, a_group(synapse, agent) as (room, alice, bob):
        dm = await meet(agent, alice)
        root = await alice.send(dm, "the root of it")
        main = await alice.wait_for_text(agent.user_id, "echo: the root of it", room_id=dm)
        assert main.thread is None
        await alice.in_thread(dm, root, "aside")
        aside = await alice.wait_for_text(agent.user_id, "echo: aside", room_id=dm)
        assert aside.thread == root
        assert "root of it" not in " ".join(house.words())
        await alice.in_thread(dm, root, "further aside")
        further = await alice.wait_for_text(agent.user_id, "echo: further aside", room_id=dm)
        assert (further.thread, house.words()[0]) == (root, "aside")
        await alice.in_thread(dm, root, "!status")
        status = await alice.wait_for_text(agent.user_id, "Answered by", room_id=dm)
        assert status.thread == root

        theirs = await bob.send(room, "what about lunch?")
        await alice.in_thread(room, theirs, "not for the agent")
        await alice.in_thread(room, theirs, "for the agent", mentions=[agent.user_id])
        told = await alice.wait_for_text(agent.user_id, "echo: for the agent", room_id=room)
        assert told.thread == theirs
        assert "not for the agent" not in " ".join(house.words())


async def test_a_third_person_in_the_room_makes_it_a_group(synapse: Synapse, house: House) -> None:
    async with (
        an_agent(synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
        Person.on(synapse, name="Bob") as bob,
    ):
        dm = await meet(agent, alice)
        await alice.send(dm, "between us")
        await alice.wait_for_text(agent.user_id, "echo: between us", room_id=dm)
        await alice.invite(dm, bob.user_id)
        await bob.wait_for_invite()
        await bob.join(dm)
        await alice.wait_for_member(dm, bob.user_id)
        await alice.send(dm, "Hello Bob")
        await bob.send(dm, "What did she say?", mentions=[agent.user_id])
        await bob.wait_for_text(agent.user_id, "echo: What did she say?", room_id=dm)
        assert house.words() == ["What did she say?"]
        await alice.send(dm, "what did I say?", mentions=[agent.user_id])
        await alice.wait_for_text(agent.user_id, "echo: what did I say?", room_id=dm)
        assert "between us" in " ".join(house.words())
        assert "Hello Bob" not in " ".join(house.words())
        # Alone again, it need not be called.
        await bob.leave(dm)
        await until(lambda: bob.user_id not in alice.client.rooms[dm].users)
        await alice.send(dm, "gone he is")
        await alice.wait_for_text(agent.user_id, "echo: gone he is", room_id=dm)


async def test_in_a_group_commands_need_its_name_and_a_kick_delays_what_is_due(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    scenes.when("work", run(waiting("go")), Reply(text="It is done."))
    async with an_agent(synapse, house) as agent, a_group(synapse, agent) as (room, alice, bob):
        await alice.send(room, "!status")
        await alice.send(room, "Parley: !usage", mentions=[agent.user_id])
        await alice.wait_for_text(agent.user_id, "This conversation:", room_id=room)
        assert len(answers(alice, agent, room)) == 1
        theirs = await bob.send(room, "work", mentions=[agent.user_id])
        await bob.wait_for_text(agent.user_id, "terminal", room_id=room)
        await alice.in_thread(room, theirs, "work", mentions=[agent.user_id])
        await alice.wait_for_message(lambda each: each.thread == theirs and "term" in each.text)
        await alice.kick(room, agent.user_id)
        assert agent.surface is not None
        serving = agent.surface.serving
        await until(lambda: serving._rooms.is_out(room))
        let_go(house, "go")
        assert house.gateway is not None
        async with asyncio.timeout(60):
            while (await house.gateway.status()).profiles[0].undelivered != 2:
                await asyncio.sleep(0.01)
        await alice.invite(room, agent.user_id)
        await until(lambda: answers(bob, agent, room).count("It is done.") == 2)


async def test_in_a_thread_it_asks_sends_files_and_streams_as_well(
    synapse: Synapse, house: House, scenes: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = AskingTool()
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    house.settings["agent"] = {"tools": ["deed", "send_file"]}
    (house.profile.workspace / "a.txt").write_text("words")
    acts = (("deed", {"word": "now"}), ("send_file", {"path": "a.txt"}))
    story = Reply(text="One thing. Another. " * 20, chunks=8, chunk_delay=0.08)
    scenes.when("act", calls(*acts), Reply(text="Acted."))
    scenes.when("tell", story)
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=True)
        root = await alice.send(room, "the root")
        await alice.wait_for_text(agent.user_id, "heard: the root", room_id=room)
        await alice.in_thread(room, root, "act")
        asked = await alice.wait_for_text(agent.user_id, '"now"', room_id=room)
        assert asked.thread == root
        await alice.react(room, asked.event_id, "👍")
        file = await alice.wait_for_message(lambda each: each.kind == "m.file")
        acted = await alice.wait_for_text(agent.user_id, "Acted.", room_id=room)
        assert (acted.thread, file.thread, len(deed.done)) == (root, root, 1)
        await alice.in_thread(room, root, "tell")
        told = await alice.wait_for_text(agent.user_id, "One thing.", room_id=room)
        await until(lambda: told.text == story.text.rstrip())
        assert (told.thread, told.edits > 0, told.encrypted) == (root, True, True)
