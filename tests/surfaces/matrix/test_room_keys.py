"""Everyone who is in an encrypted room can read the next answer, on every device that they have."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from parley.surfaces.matrix.account import read_account, write_account
from parley.surfaces.matrix.connection import Connection, part
from tests.gateway.house import House
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import Agent, an_agent, meet
from tests.surfaces.matrix.person import Person
from tests.surfaces.matrix.processes import answers_to
from tests.surfaces.matrix.turnstile import Turnstile
from tests.waiting import until

QUERY = "/keys/query"
CLAIM = "/keys/claim"
TO_DEVICE = "/sendToDevice/"


@asynccontextmanager
async def behind(gate: Turnstile, synapse: Synapse, house: House) -> AsyncIterator[Agent]:
    """An agent whose every request to the homeserver goes through the gate."""
    async with an_agent(synapse, house, thumbs=False) as agent:
        await agent.close()
        account = read_account(house.profile)
        assert account is not None
        write_account(house.profile, replace(account, homeserver=gate.url))
        await agent.open()
        yield agent


@asynccontextmanager
async def told_of_a_login(agent: Agent, person: Person, room: str) -> AsyncIterator[Person]:
    """A new device of a person, as soon as the agent's sync has told it that there is one."""
    async with Person.on(person.synapse, person.account, new_device=True) as device:
        await device.wait_for_room(room)
        await is_told_of_all(agent, person, room)
        yield device


async def is_told_of_all(agent: Agent, person: Person, room: str) -> None:
    """Wait until the agent's sync has told it what happened so far."""
    topic = secrets.token_hex(8)
    await person.set_state(room, "m.room.topic", {"topic": topic})
    rooms = connection_of(agent).nio.rooms
    await until(lambda: rooms[room].topic == topic, seconds=15)


def connection_of(agent: Agent) -> Connection:
    assert agent.surface is not None
    return agent.surface.serving._connection


async def reads(device: Person, agent: Agent, room: str, text: str) -> bool:
    with contextlib.suppress(AssertionError):
        await device.wait_for_text(agent.user_id, text, room_id=room, seconds=10)
        return True
    return False


async def test_a_device_that_comes_while_devices_are_asked_for_reads_the_next_answer(
    synapse: Synapse, house: House
) -> None:
    async with (
        Turnstile.before(synapse.url) as gate,
        behind(gate, synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
    ):
        room = await meet(agent, alice, encrypted=True)
        asked = gate.hold("POST", QUERY, done=True)
        async with (
            told_of_a_login(agent, alice, room) as tablet,
            told_of_a_login(agent, alice, room) as phone,
        ):
            assert asked.reached.is_set()
            asked.over.set()
            await alice.send(room, "who can read this?")
            for device in (alice, tablet, phone):
                assert await reads(device, agent, room, "echo: who can read this?")


async def test_a_device_that_comes_while_a_key_is_sent_reads_what_is_sealed_with_it(
    synapse: Synapse, house: House
) -> None:
    async with (
        Turnstile.before(synapse.url) as gate,
        behind(gate, synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
    ):
        room = await meet(agent, alice, encrypted=True)
        async with told_of_a_login(agent, alice, room) as tablet:
            sent = gate.hold("PUT", TO_DEVICE, done=True)
            await alice.send(room, "now?")
            await asyncio.wait_for(sent.reached.wait(), 15)
            async with told_of_a_login(agent, alice, room) as phone:
                await until(lambda: knows(agent, phone))
                sent.over.set()
                for device in (alice, tablet, phone):
                    assert await reads(device, agent, room, "echo: now?")


async def test_who_leaves_while_a_key_is_sent_reads_nothing_that_is_sealed_later(
    synapse: Synapse, house: House
) -> None:
    async with (
        Turnstile.before(synapse.url) as gate,
        behind(gate, synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
        Person.on(synapse, name="Bob") as bob,
    ):
        room = await alice.create_room(invite=[bob.user_id, agent.user_id], encrypted=True)
        await bob.wait_for_invite()
        await bob.join(room)
        await alice.wait_for_member(room, agent.user_id)
        sent = gate.hold("PUT", TO_DEVICE, done=True)
        await alice.send(room, "only for me", mentions=[agent.user_id])
        await asyncio.wait_for(sent.reached.wait(), 15)
        await bob.leave(room)
        await is_told_of_all(agent, alice, room)
        sent.over.set()
        answer = await alice.wait_for_text(agent.user_id, "echo: only for me", room_id=room)
        told = await alice.call("GET", f"/v3/rooms/{part(room)}/event/{part(answer.event_id)}")
        sealed = told["content"]
        olm = bob.client.olm
        assert olm is not None
        held = olm.inbound_group_store.get(room, sealed["sender_key"], sealed["session_id"])
        assert held is None


@pytest.mark.parametrize("lost", [CLAIM, TO_DEVICE, QUERY])
async def test_what_the_homeserver_fails_at_is_done_again_before_anything_is_sealed(
    synapse: Synapse, house: House, lost: str
) -> None:
    async with (
        Turnstile.before(synapse.url) as gate,
        behind(gate, synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
    ):
        room = await meet(agent, alice, encrypted=True)
        held = gate.hold("PUT" if lost == TO_DEVICE else "POST", lost, done=False)
        async with told_of_a_login(agent, alice, room) as phone:
            await alice.send(room, "once more")
            await asyncio.wait_for(held.reached.wait(), 15)
            held.lose()
            for device in (alice, phone):
                assert await reads(device, agent, room, "echo: once more")
        assert len(answers_to(alice, agent.user_id, room, "echo: once more")) == 1


async def test_a_device_without_one_time_keys_reads_on_as_soon_as_it_has_some(
    synapse: Synapse, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.surfaces.matrix.room_keys._ASK_AGAIN", 0.0)
    async with (
        Turnstile.before(synapse.url) as gate,
        behind(gate, synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
    ):
        room = await meet(agent, alice, encrypted=True)
        gate.altered[CLAIM] = lambda _told: b'{"one_time_keys": {}, "failures": {}}'
        async with told_of_a_login(agent, alice, room) as phone:
            await alice.send(room, "not on the phone")
            await alice.wait_for_text(agent.user_id, "echo: not on the phone", room_id=room)
            del gate.altered[CLAIM]
            await alice.send(room, "on the phone too")
            assert await reads(phone, agent, room, "echo: on the phone too")
            assert not answers_to(phone, agent.user_id, room, "echo: not on the phone")


async def test_a_device_with_broken_keys_keeps_nobody_else_from_reading(
    synapse: Synapse, house: House
) -> None:
    async with (
        Turnstile.before(synapse.url) as gate,
        behind(gate, synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
    ):
        room = await meet(agent, alice, encrypted=True)
        gate.altered[QUERY] = partial(with_broken_devices, alice.user_id)
        gate.altered[CLAIM] = partial(with_broken_key, alice.user_id)
        async with (
            told_of_a_login(agent, alice, room),
            told_of_a_login(agent, alice, room) as phone,
        ):
            await alice.send(room, "can we still talk?")
            assert await reads(alice, agent, room, "echo: can we still talk?")
            assert await reads(phone, agent, room, "echo: can we still talk?")


def with_broken_devices(user: str, told: bytes) -> bytes:
    """Nobody checks what a device says its keys are."""
    answer = json.loads(told)
    devices = answer["device_keys"].get(user)
    if devices:
        whole = next(iter(devices.values()))
        for number, broken in enumerate(
            (
                {},
                {**whole, "device_id": "BROKEN1", "keys": {"ed25519:BROKEN1": "no key"}},
                {
                    **whole,
                    "device_id": "BROKEN2",
                    "keys": {"ed25519:BROKEN2": "no key", "curve25519:BROKEN2": "none"},
                    "signatures": {user: {"ed25519:BROKEN2": "no signature"}},
                },
            )
        ):
            devices[f"BROKEN{number}"] = broken
    return json.dumps(answer).encode()


def with_broken_key(user: str, told: bytes) -> bytes:
    """The one-time key of the first device is no key, and comes before all others."""
    answer = json.loads(told)
    theirs = answer["one_time_keys"].get(user, {})
    if len(theirs) > 1:
        first, *more = theirs
        answer["one_time_keys"][user] = {first: {}} | {each: theirs[each] for each in more}
    return json.dumps(answer).encode()


async def test_a_device_that_was_gone_for_a_while_reads_again(
    synapse: Synapse, house: House
) -> None:
    async with (
        Turnstile.before(synapse.url) as gate,
        behind(gate, synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
    ):
        room = await meet(agent, alice, encrypted=True)
        async with told_of_a_login(agent, alice, room) as phone:
            await until(lambda: knows(agent, phone))
            store = connection_of(agent).nio.device_store
            store[alice.user_id][phone.client.device_id].deleted = True
            async with told_of_a_login(agent, alice, room):
                await alice.send(room, "are you back?")
                assert await reads(phone, agent, room, "echo: are you back?")


async def test_every_new_device_reads_on_where_the_homeserver_is_slow(
    synapse: Synapse, house: House
) -> None:
    """Devices log in without a pause, also while the agent starts and is invited."""
    async with (
        Turnstile.before(synapse.url) as gate,
        behind(gate, synapse, house) as agent,
        Person.on(synapse, name="Alice") as alice,
        AsyncExitStack() as stack,
    ):
        for late in (QUERY, CLAIM):
            gate.slow[late] = lambda: random.uniform(0.15, 0.5)
        room = await meet(agent, alice, encrypted=True)
        await agent.close()
        invited = await alice.create_dm(agent.user_id, encrypted=True)
        opening = asyncio.create_task(agent.open())
        devices = [alice]
        for number in range(6):
            here = Person.on(synapse, alice.account, new_device=True)
            devices.append(await stack.enter_async_context(here))
            await alice.send(room, f"number {number};")
        await opening
        await alice.wait_for_text(agent.user_id, "!help", room_id=invited, seconds=30)
        for at in (room, invited):
            await alice.send(at, "and all of you?")
        for device in devices:
            for at in (room, invited):
                assert await reads(device, agent, at, "echo: and all of you?")


def knows(agent: Agent, device: Person) -> bool:
    known = connection_of(agent).nio.device_store
    return any(each.id == device.client.device_id for each in known)
