"""A gateway ends in the middle of what it says: the next one goes on, in the same message."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.servers.synapse import Synapse
from tests.surfaces.matrix.chatter import Chatter, kill_at_random
from tests.surfaces.matrix.joined import a_pair, come_in, new_chat
from tests.surfaces.matrix.killing import a_scene
from tests.surfaces.matrix.person import Person
from tests.surfaces.matrix.processes import until_said

pytestmark = pytest.mark.timeout(300)  # a busy machine is slow to start processes

SLOW = "[[chunks 20]] [[pace 0.1]] "


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_an_ordinary_end_in_the_middle_of_a_reply_is_not_shown_as_a_stop(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    async with a_scene(synapse, tmp_path / "home") as scene, Person.on(synapse) as alice:
        room = await alice.create_dm(scene.agent, encrypted=encrypted)
        await alice.wait_for_text(scene.agent, "Hello", room_id=room)
        for word in ("first", "second"):
            await alice.send(room, f"{SLOW}{word} word")
            begun = await alice.wait_for_message(
                lambda each: each in alice.from_sender(scene.agent, room)[1:] and each.edits == 0
            )
            assert await scene.gateway.stop() == 0
            scene.gateway.start()
            whole = f"echo: {SLOW}{word} word"
            await until_said(alice, scene.agent, room, whole)
            assert begun.text == whole
            assert not any("stopped" in text for text in begun.texts)
        await scene.gateway.until_quiet()
        assert len(alice.from_sender(scene.agent, room)) == 3
        assert alice.unreadable == []


async def test_what_a_person_writes_while_the_gateway_is_killed_is_answered_once(
    synapse: Synapse, tmp_path: Path
) -> None:
    chance = random.Random(7)
    async with a_scene(synapse, tmp_path / "home") as scene, Person.on(synapse) as alice:
        rooms = []
        for encrypted in (False, True, False):
            room = await alice.create_dm(scene.agent, encrypted=encrypted)
            await alice.wait_for_text(scene.agent, "", room_id=room)
            rooms.append(room)
        chatter = Chatter(alice, scene.agent, rooms, chance)
        await chatter.write(6, pause=0.1)
        for _ in range(3):
            await kill_at_random([scene.gateway], 1, chance, longest=1.0)
            await chatter.write(3, pause=0.1)
        await chatter.until_answered(seconds=60)
        await scene.gateway.until_quiet()
        assert chatter.faults() == []
        assert await scene.rooms_for(alice) == {"space": 1, "chat": 1, "invite": 2}


async def test_a_joined_pair_answers_everything_once_whichever_end_is_killed(
    synapse: Synapse, tmp_path: Path
) -> None:
    chance = random.Random(8)
    async with a_pair(synapse, tmp_path) as pair, Person.on(synapse) as alice:
        first = await come_in(alice, pair.agent)
        rooms = [first, await new_chat(alice, pair.agent, first, "Garden")]
        chatter = Chatter(alice, pair.agent, rooms, chance)
        await chatter.write(4, pause=0.1)
        for _ in range(3):
            await kill_at_random([pair.front, pair.far], 1, chance, longest=1.0)
            await chatter.write(3, pause=0.1)
        await chatter.until_answered(seconds=60)
        await pair.far.until_quiet()
        await pair.front.until_quiet()
        assert chatter.faults() == []
