"""The gateway is killed with -9 at every place of its work: nothing is lost or there twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.synapse import Synapse
from tests.surfaces.matrix.killing import SEND, Place, a_scene
from tests.surfaces.matrix.person import Person
from tests.surfaces.matrix.processes import answers_to, until_said

pytestmark = pytest.mark.timeout(300)  # a busy machine is slow to start a process again

SLOW = "[[chunks 12]] [[pace 0.05]] "

REPLIES = (
    (SLOW, Place("heard and not kept", "GET", "/sync", done=True, often=True)),
    (SLOW, Place("a preview on its way", "PUT", SEND, done=False)),
    (SLOW, Place("a preview that is there", "PUT", SEND, done=True)),
    (SLOW, Place("an edit on its way", "PUT", SEND, done=False, times=2)),
    (SLOW, Place("an edit that is there", "PUT", SEND, done=True, times=2, often=True)),
    ("", Place("a reply on its way", "PUT", SEND, done=False)),
    ("", Place("a reply that is there", "PUT", SEND, done=True, often=True)),
)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_a_reply_is_there_once_wherever_its_gateway_was_killed(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    async with a_scene(synapse, tmp_path / "home") as scene, Person.on(synapse) as alice:
        room = await alice.create_dm(scene.agent, encrypted=encrypted)
        await alice.wait_for_text(scene.agent, "Hello", room_id=room)
        said = []
        for pace, place in (each for each in REPLIES if each[1].is_tried):
            text = f"{pace}{scene.word()}"
            hold = scene.hold(place, hears=room if place.method == "GET" else "")
            await alice.send(room, text)
            await scene.kill_at(hold)
            await until_said(alice, scene.agent, room, f"echo: {text}")
            said.append(text)
        await scene.gateway.until_quiet()
        for text in said:
            assert len(answers_to(alice, scene.agent, room, text)) == 1, text
        # One hello, and one message for each of theirs: nothing else was left behind.
        assert len(alice.from_sender(scene.agent, room)) == 1 + len(said)
        assert alice.unreadable == []


WELCOMES = (
    Place("a join on its way", "POST", "/join/", done=False),
    Place("a join that is done", "POST", "/join/", done=True, often=True),
    Place("a space on its way", "POST", "/createRoom", done=False),
    Place("a space that is there", "POST", "/createRoom", done=True, often=True),
    Place("a room on its way", "POST", "/createRoom", done=False, times=2),
    Place("a room that is there", "POST", "/createRoom", done=True, times=2, often=True),
    Place("a place in the space on its way", "PUT", "/m.space.child/", done=False, often=True),
    Place("a place in the space that is there", "PUT", "/m.space.child/", done=True),
    Place("a hello on its way", "PUT", SEND, done=False),
    Place("a hello that is there", "PUT", SEND, done=True, often=True),
)


async def test_a_welcome_is_given_once_wherever_its_gateway_was_killed(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_scene(synapse, tmp_path / "home", encrypt=False) as scene:
        for place in (each for each in WELCOMES if each.is_tried):
            async with Person.on(synapse) as guest:
                hold = scene.hold(place)
                room = await guest.create_dm(scene.agent, encrypted=False)
                await scene.kill_at(hold)
                await guest.wait_for_text(scene.agent, "Hello", room_id=room)
                await scene.gateway.until_quiet()
                assert len(guest.from_sender(scene.agent, room)) == 1, place
                made = await scene.rooms_for(guest)
                assert made == {"space": 1, "chat": 1, "invite": 2}, place


async def test_a_chat_is_made_once_wherever_its_gateway_was_killed(
    synapse: Synapse, tmp_path: Path
) -> None:
    places = [place for place in WELCOMES[2:] if place.times == 1 and place.is_tried]
    async with (
        a_scene(synapse, tmp_path / "home", encrypt=False) as scene,
        Person.on(synapse) as alice,
    ):
        room = await alice.create_dm(scene.agent, encrypted=False)
        await alice.wait_for_text(scene.agent, "Hello", room_id=room)
        for number, place in enumerate(places, start=2):
            hold = scene.hold(place)
            await alice.send(room, f"!new Garden {number}")
            await scene.kill_at(hold)
            await alice.wait_for_text(scene.agent, f"C{number}", room_id=room)
            await scene.gateway.until_quiet()
            made = await scene.rooms_for(alice)
            assert made == {"space": 1, "chat": number, "invite": 1 + number}, place
        assert len(alice.from_sender(scene.agent, room)) == 1 + len(places)


async def test_a_file_is_there_once_wherever_its_gateway_was_killed(
    synapse: Synapse, tmp_path: Path
) -> None:
    places = (
        Place("a file on its way", "POST", "/upload", done=False),
        Place("a file that is there", "POST", "/upload", done=True, often=True),
        Place("its message on its way", "PUT", SEND, done=False, says="m.file"),
        Place("its message that is there", "PUT", SEND, done=True, says="m.file", often=True),
    )
    tried = [place for place in places if place.is_tried]
    async with a_scene(synapse, tmp_path / "home") as scene, Person.on(synapse) as alice:
        room = await alice.create_dm(scene.agent, encrypted=False)
        await alice.wait_for_text(scene.agent, "Hello", room_id=room)
        workspace = scene.gateway.profile.home / "workspace"
        workspace.mkdir(exist_ok=True)
        for number, place in enumerate(tried):
            (workspace / f"{number}.csv").write_text(f"number,{number}\n")
            hold = scene.hold(place)
            await alice.send(room, f'Send it. [[tool send_file {{"path": "{number}.csv"}}]]')
            await scene.kill_at(hold)
            await until_said(alice, scene.agent, room, f"{number}.csv")
            await scene.gateway.until_quiet()
        files = [each for each in alice.from_sender(scene.agent, room) if each.kind == "m.file"]
        assert [file.text for file in files] == [f"{n}.csv" for n in range(len(tried))]
        assert await alice.download(files[1].content) == b"number,1\n"
        # One hello, and a reply for each of theirs.
        assert len(alice.from_sender(scene.agent, room)) == 1 + 2 * len(tried)


async def test_a_room_that_a_slow_homeserver_makes_only_after_the_kill_is_found(
    synapse: Synapse, tmp_path: Path
) -> None:
    place = Place("a room on its way", "POST", "/createRoom", done=False)
    async with (
        a_scene(synapse, tmp_path / "home", encrypt=False) as scene,
        Person.on(synapse) as alice,
    ):
        room = await alice.create_dm(scene.agent, encrypted=False)
        await alice.wait_for_text(scene.agent, "Hello", room_id=room)
        hold = scene.hold(place)
        await alice.send(room, "!new Garden")
        await scene.kill_at(hold, late=True)
        await alice.wait_for_text(scene.agent, "C2", room_id=room)
        await scene.gateway.until_quiet()
        assert await scene.rooms_for(alice) == {"space": 1, "chat": 2, "invite": 3}


async def test_what_was_heard_and_not_yet_kept_is_heard_again_once(
    synapse: Synapse, tmp_path: Path
) -> None:
    place = Place("between a sync and its commit", "GET", "/media/download", done=False)
    async with a_scene(synapse, tmp_path / "home") as scene, Person.on(synapse) as alice:
        room = await alice.create_dm(scene.agent, encrypted=False)
        await alice.wait_for_text(scene.agent, "Hello", room_id=room)
        hold = scene.hold(place)
        await alice.send_file(room, b"A file.", caption="the file word")
        await alice.send(room, "the other word")
        await scene.kill_at(hold)
        for word in ("the file word", "the other word"):
            await alice.wait_for_text(scene.agent, word, room_id=room)
        await scene.gateway.until_quiet()
        for word in ("the file word", "the other word"):
            assert len(answers_to(alice, scene.agent, room, word)) == 1
