"""The gateway is killed while it fetches what was written meanwhile, or says what it missed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

from parley.profiles import Profile
from parley.storage.sqlite import SqliteStore
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.killing import SEND, Scene, a_scene
from tests.surfaces.matrix.plain_person import PlainPerson
from tests.waiting import until_true

pytestmark = pytest.mark.timeout(300)  # a busy machine is slow to start a process again

MORE_THAN_ONE_SYNC = 55
MISSED = "I missed the oldest of it"


async def a_room(scene: Scene, alice: PlainPerson, *others: PlainPerson) -> str:
    """A room that the agent has come into."""
    invited = [scene.agent, *(other.account.user_id for other in others)]
    wanted = {"preset": "trusted_private_chat", "is_direct": not others, "invite": invited}
    room = str((await alice.call("POST", "/createRoom", wanted))["room_id"])

    async def is_there() -> bool:
        told = await alice.call("GET", f"/rooms/{quote(room)}/joined_members")
        return scene.agent in told["joined"]

    await until_true(is_there)
    return room


async def write(alice: PlainPerson, room: str) -> None:
    for number in range(MORE_THAN_ONE_SYNC):
        await alice.send(room, f"late {number};")


async def asked(profile: Profile) -> list[str]:
    """What people asked, in all of its conversations; nobody may serve it."""
    store = SqliteStore.open(profile.database_file)
    try:
        told = [
            entry.message.text
            for session in await store.sessions(limit=100)
            for entry in await store.transcript(session.id, whole=True)
            if entry.message.role == "user"
        ]
        assert await store.marks("matrix:missed:") == {}
    finally:
        await store.close()
    return told


async def notices(alice: PlainPerson, room: str, agent: str) -> int:
    return sum(MISSED in text for text in await alice.texts(room, agent))


async def until_noticed(alice: PlainPerson, rooms: Sequence[str], agent: str) -> None:
    for room in rooms:

        async def is_told(room: str = room) -> bool:
            return await notices(alice, room, agent) > 0

        await until_true(is_told, seconds=120)


async def test_what_was_being_fetched_when_it_was_killed_is_answered_once(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_scene(synapse, tmp_path / "home") as scene:
        alice = await PlainPerson.on(synapse)
        room = await a_room(scene, alice)
        await alice.wait_for(room, scene.agent, "Hello…")
        assert await scene.gateway.stop() == 0
        await write(alice, room)
        hold = scene.gate.hold("GET", "/messages", done=True)
        scene.gateway.start()
        await scene.kill_at(hold)
        await alice.send(room, "the last one")

        async def is_answered() -> bool:
            return any("the last one" in text for text in await alice.texts(room, scene.agent))

        await until_true(is_answered, seconds=120)
        await scene.gateway.until_quiet()
        assert await notices(alice, room, scene.agent) == 0
        assert await scene.gateway.stop() == 0
        numbers = re.findall(r"late (\d+);", " ".join(await asked(scene.gateway.profile)))
        assert numbers == [str(number) for number in range(MORE_THAN_ONE_SYNC)]


@pytest.mark.parametrize("done", [False, True], ids=["on its way", "there already"])
async def test_a_notice_of_what_was_missed_is_there_once_in_each_room_however_it_is_killed(
    synapse: Synapse, tmp_path: Path, done: bool
) -> None:
    async with a_scene(synapse, tmp_path / "home") as scene:
        alice, bob = await PlainPerson.on(synapse), await PlainPerson.on(synapse)
        rooms = [await a_room(scene, alice), await a_room(scene, alice, bob)]
        await alice.wait_for(rooms[0], scene.agent, "Hello…")
        assert await scene.gateway.stop() == 0
        scene.gate.refused.add("/messages")
        await asyncio.gather(*(write(alice, room) for room in rooms))
        hold = scene.gate.hold("PUT", SEND, done=done, says=MISSED)
        scene.gateway.start()
        await scene.kill_at(hold)
        await until_noticed(alice, rooms, scene.agent)
        scene.gateway.kill()  # and once more, with nothing left to tell
        scene.gateway.start()
        await scene.gateway.until_ready()
        await alice.send(rooms[0], "the last one")
        await alice.wait_for(rooms[0], scene.agent, "echo: the last one", seconds=120)
        await scene.gateway.until_quiet()
        assert [await notices(alice, room, scene.agent) for room in rooms] == [1, 1]
        assert await scene.gateway.stop() == 0
        await asked(scene.gateway.profile)
