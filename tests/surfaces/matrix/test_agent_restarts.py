"""An agent that was away, and one whose homeserver was: nothing is lost and nothing said twice."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from parley.agent.tools import TOOLS
from parley.surfaces.matrix.account import read_account, write_account
from tests.gateway.asking_tool import AskingTool
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, calls, let_go, run, waiting
from tests.servers.scripted_model import Reply
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import Agent, an_agent, meet
from tests.surfaces.matrix.person import Message, Person
from tests.surfaces.matrix.relay import Relay
from tests.waiting import until


def devices(agent: Agent) -> list[str]:
    account = read_account(agent.house.profile)
    assert account is not None
    told = agent.synapse.call("GET", "/_matrix/client/v3/devices", token=account.access_token)
    return [device["device_id"] for device in told["devices"]]


def times(person: Person, agent: Agent, words: str) -> int:
    """How many messages of the agent have these words."""
    return sum(words in each.text for each in person.from_sender(agent.user_id))


async def test_what_is_said_while_it_is_away_is_answered_once_and_nothing_else_again(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        before = devices(agent)
        plain = await meet(agent, alice)
        secret = await meet(agent, alice, encrypted=True)
        for room in (plain, secret):
            await alice.send(room, f"early in {room}")
            await alice.wait_for_text(agent.user_id, f"echo: early in {room}", room_id=room)
        await agent.close()
        for room in (plain, secret):
            await alice.send(room, f"late in {room}")
        invited = await alice.create_dm(agent.user_id, encrypted=False)
        await agent.open()
        for room in (plain, secret):
            await alice.wait_for_text(agent.user_id, f"echo: late in {room}", room_id=room)
        await alice.wait_for_text(agent.user_id, "!help", room_id=invited)
        await agent.close()
        await agent.open()
        await alice.send(secret, "the last")
        await alice.wait_for_text(agent.user_id, "echo: the last", room_id=secret)
        for room in (plain, secret):
            assert times(alice, agent, f"early in {room}") == 1
            assert times(alice, agent, f"late in {room}") == 1
        assert house.model.total == 5
        assert devices(agent) == before
        assert len(before) == 1


async def test_more_than_one_sync_tells_of_is_heard_whole(synapse: Synapse, house: House) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice)
        await alice.send(room, "before")
        await alice.wait_for_text(agent.user_id, "echo: before", room_id=room)
        await agent.close()
        for number in range(70):
            await alice.send(room, f"number {number};")
        await agent.open()
        await alice.wait_for_text(agent.user_id, "number 69;", room_id=room)
        said = " ".join(house.words())
        assert re.findall(r"number (\d+);", said) == [str(number) for number in range(70)]


async def faults(house: House) -> tuple[str, ...]:
    assert house.gateway is not None
    status = await house.gateway.status()
    return status.profiles[0].problems


async def until_faulty(house: House, *, faulty: bool) -> None:
    async with asyncio.timeout(60):
        while bool(await faults(house)) is not faulty:
            await asyncio.sleep(0.02)


async def test_a_homeserver_that_goes_away_is_told_of_and_waited_for(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    scenes.when("work", run(waiting("go")), Reply(text="It is done."))
    async with (
        Relay(synapse.url) as relay,
        an_agent(synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
    ):
        room = await meet(agent, alice, encrypted=True)
        await agent.close()
        account = read_account(house.profile)
        assert account is not None
        write_account(house.profile, replace(account, homeserver=relay.url))
        await agent.open()
        await alice.send(room, "work")
        running = await alice.wait_for_text(agent.user_id, "terminal", room_id=room)
        assert await faults(house) == ()

        await relay.cut()
        await until_faulty(house, faulty=True)
        (told,) = await faults(house)
        assert told.startswith("matrix: ")
        assert account.access_token not in told
        let_go(house, "go")
        await alice.send(room, "are you there?")
        await house.model.until(lambda model: model.total == 2)
        await relay.join()
        await until_faulty(house, faulty=False)
        await alice.wait_for_text(agent.user_id, "heard: are you there?", room_id=room)
        await until(lambda: running.text == "It is done.")
        assert times(alice, agent, "It is done.") == 1

        # It is away when the agent is opened.
        await agent.close()
        await relay.cut()
        await alice.send(room, "nobody is there")
        opening = asyncio.create_task(agent.open())
        await until(lambda: house.gateway is not None)
        await until_faulty(house, faulty=True)
        assert not agent.is_ready
        await relay.join()
        await opening
        await alice.wait_for_text(agent.user_id, "heard: nobody is there", room_id=room)
        await until_faulty(house, faulty=False)


async def test_a_homeserver_that_does_not_answer_for_a_while_gets_one_answer(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    words = "It goes on. " * 40
    scenes.when("talk", Reply(text=words, chunks=20, chunk_delay=0.1))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice)
        await alice.send(room, "talk")
        running = await alice.wait_for_text(agent.user_id, "It goes on.", room_id=room)
        synapse.pause()
        try:
            await house.model.until(lambda model: model.open_streams == 0)
        finally:
            synapse.resume()
        await until(lambda: running.text == words.rstrip())
        assert times(alice, agent, "It goes on.") == 1
        await alice.send(room, "and then?")
        await alice.wait_for_text(agent.user_id, "heard: and then?", room_id=room)


async def test_an_account_that_was_logged_out_says_how_to_log_in_again(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        await meet(agent, alice)
        account = read_account(house.profile)
        assert account is not None
        synapse.call("POST", "/_matrix/client/v3/logout", {}, token=account.access_token)
        await until_faulty(house, faulty=True)
        (told,) = await faults(house)
        assert "parley matrix login" in told


async def test_an_answer_that_a_restart_breaks_off_is_still_one_message(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    words = "It goes on. " * 40
    scenes.when("talk", Reply(text=words, chunks=40, chunk_delay=0.1))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        for encrypted in (False, True):
            room = await meet(agent, alice, encrypted=encrypted)
            await alice.send(room, "talk")
            running = await alice.wait_for_text(agent.user_id, "It goes on.", room_id=room)
            await agent.close()
            assert running.text != words.rstrip()
            await agent.open()
            await until(partial(_says, running, words.rstrip()))
            said = [each.text for each in alice.from_sender(agent.user_id, room)]
            assert sum("It goes on." in text for text in said) == 1


def _says(message: Message, text: str) -> bool:
    return message.text == text


async def test_what_is_said_between_the_invitation_and_its_coming_is_heard(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        await agent.close()
        plain = await alice.create_dm(agent.user_id, encrypted=False)
        await alice.send(plain, "my first words")
        secret = await alice.create_dm(agent.user_id, encrypted=True)
        # A client gives the key to those who are invited as well, once it knows of them.
        known = alice.client.rooms[secret]
        await until(lambda: agent.user_id in known.users)
        known.members_synced = True
        await alice.send(secret, "my secret words")
        await agent.open()
        await alice.wait_for_text(agent.user_id, "echo: my first words", room_id=plain)
        await alice.wait_for_text(agent.user_id, "echo: my secret words", room_id=secret)
        assert house.model.total == 2


async def test_what_it_said_before_a_restart_may_be_answered_after_it(
    synapse: Synapse, house: House, scenes: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = AskingTool(safe_to_repeat=True)
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    house.settings["agent"] = {"tools": ["deed"]}
    scenes.when("act", calls(("deed", {"word": "now"})), Reply(text="It is settled."))
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
        await alice.send(room, "hello", mentions=[agent.user_id])
        said = await alice.wait_for_text(agent.user_id, "heard: hello", room_id=room)
        await bob.send(room, "act", mentions=[agent.user_id])
        asked = await bob.wait_for_text(agent.user_id, '"now"', room_id=room)
        await agent.close()
        await agent.open()
        await alice.reply_to(room, said.event_id, "and again")
        await alice.wait_for_text(agent.user_id, "heard: and again", room_id=room)
        await alice.react(room, asked.event_id, "👍")
        questions = [each for each in bob.from_sender(agent.user_id) if '"now"' in each.text]
        await bob.react(room, questions[-1].event_id, "👍")
        await bob.wait_for_text(agent.user_id, "It is settled.", room_id=room)
        assert len(deed.done) == 1


async def test_who_logs_in_again_need_not_start_the_gateway_anew(
    synapse: Synapse, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.surfaces.matrix.surface._LOOK_FOR_LOGIN", 0.1)
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice)
        account = read_account(house.profile)
        assert account is not None
        path, old = "/_matrix/client/v3/logout", account.access_token
        await asyncio.to_thread(synapse.call, "POST", path, {}, token=old)
        await until(lambda: agent.surface is not None and agent.surface.fault is not None)
        again = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": account.user_id},
            "password": agent.password,
            "device_id": account.device_id,
        }
        told = await asyncio.to_thread(synapse.call, "POST", "/_matrix/client/v3/login", again)
        write_account(house.profile, replace(account, access_token=told["access_token"]))
        await until(lambda: agent.surface is not None and agent.surface.fault is None)
        await until(lambda: agent.is_ready)
        await alice.send(room, "are you there?")
        await alice.wait_for_text(agent.user_id, "are you there?", room_id=room)


async def test_lost_keys_are_told_of_and_a_new_device_is_taken_without_a_restart(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=True)
        await agent.close()
        shutil.rmtree(house.profile.home / "matrix" / "keys")
        for last in (False, True):
            await agent.open()
            await until_faulty(house, faulty=True)
            (told,) = await faults(house)
            assert "run `parley matrix login` for a new device" in told
            assert "{" not in told
            if not last:
                await agent.close()
        account = read_account(house.profile)
        assert account is not None
        body = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": account.user_id},
            "password": agent.password,
        }
        path = "/_matrix/client/v3/login"
        made = await asyncio.to_thread(synapse.call, "POST", path, body)
        device, token = made["device_id"], made["access_token"]
        write_account(house.profile, replace(account, device_id=device, access_token=token))
        await until_faulty(house, faulty=False)
        await until(lambda: agent.is_ready)
        await alice.send(room, "can you read again?")
        answer = await alice.wait_for_text(agent.user_id, "echo: can you read", room_id=room)
        assert answer.encrypted


@pytest.mark.parametrize("how", ["lost", "unknown"])
async def test_without_its_place_in_the_stream_it_answers_what_was_written_meanwhile_once(
    synapse: Synapse, house: House, how: str
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        rooms = [await meet(agent, alice), await meet(agent, alice, encrypted=True)]
        for room in rooms:
            await alice.send(room, "early")
            await alice.wait_for_text(agent.user_id, "echo: early", room_id=room, seconds=40)
        await agent.close()
        for number in range(60):
            await alice.send(rooms[0], f"late {number};")
        await alice.send(rooms[1], "late and secret")
        invited = await alice.create_dm(agent.user_id, encrypted=False)
        for _ in range(2):
            await lose_place(house, how)
            await agent.open()
            await alice.wait_for_text(agent.user_id, "late 59;", room_id=rooms[0], seconds=40)
            await alice.wait_for_text(
                agent.user_id, "echo: late and secret", room_id=rooms[1], seconds=40
            )
            await alice.wait_for_text(agent.user_id, "!help", room_id=invited, seconds=40)
            await agent.close()
        await agent.open()
        for room in reversed(rooms):
            await alice.send(room, "the last")
            await alice.wait_for_text(agent.user_id, "echo: the last", room_id=room, seconds=40)
        said = " ".join(text for text in house.words() if not text.startswith("echo: "))
        assert re.findall(r"late (\d+);", said) == [str(number) for number in range(60)]
        assert times(alice, agent, "late and secret") == 1
        assert times(alice, agent, "echo: early") == 2


async def test_what_is_past_the_bound_is_said_to_be_missed(
    synapse: Synapse, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.surfaces.matrix.backfill._MOST", 20)
    monkeypatch.setattr("parley.surfaces.matrix.backfill._AT_ONCE", 10)
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice)
        await alice.send(room, "early")
        await alice.wait_for_text(agent.user_id, "echo: early", room_id=room, seconds=40)
        await agent.close()
        for number in range(80):
            await alice.send(room, f"late {number};")
        await lose_place(house, "lost")
        await agent.open()
        await alice.wait_for_text(agent.user_id, "I missed the oldest", room_id=room, seconds=40)
        await alice.wait_for_text(agent.user_id, "late 79;", room_id=room, seconds=40)
        said = re.findall(r"late (\d+);", " ".join(house.words()))
        assert said == [str(number) for number in range(80 - len(said), 80)]
        assert 60 <= len(said) <= 75


async def lose_place(house: House, how: str) -> None:
    """The sync token is gone, or is one that the homeserver does not know."""

    def change() -> None:
        with closing(sqlite3.connect(house.profile.database_file)) as database, database:
            if how == "lost":
                changed = database.execute("DELETE FROM mark WHERE name LIKE 'matrix:%:since'")
            else:
                changed = database.execute(
                    "UPDATE mark SET value = 'nonsense' WHERE name LIKE 'matrix:%:since'"
                )
            assert changed.rowcount == 1

    await asyncio.to_thread(change)
