"""Files on their way to the agent and from it, in plain rooms and in encrypted ones."""

from __future__ import annotations

import base64
import json
import secrets
import struct
import zlib
from typing import Any

import pytest

from tests.gateway.house import House
from tests.gateway.workshop import Scenes, calls
from tests.servers.scripted_model import Reply
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import an_agent, meet
from tests.surfaces.matrix.person import Person

both = pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])


def a_picture() -> bytes:
    """A PNG of one red dot."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    dot = zlib.compress(b"\x00\xff\x00\x00")
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", dot), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@both
async def test_pictures_files_and_voice_reach_the_model(
    synapse: Synapse, house: House, encrypted: bool
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=encrypted)
        picture = a_picture()
        await alice.send_file(
            room,
            picture,
            name="dot.png",
            media_type="image/png",
            msgtype="m.image",
            caption="what is it?",
        )
        await alice.wait_for_text(agent.user_id, "what is it?", room_id=room)
        assert base64.b64encode(picture).decode() in json.dumps(house.asked())

        await alice.send_file(room, b"the words of the file", name="words.txt")
        await alice.wait_for_text(agent.user_id, "words.txt", room_id=room)
        assert "the words of the file" in house.words()[-1]

        voice = b"OggS" + secrets.token_bytes(2000)
        await alice.send_file(
            room,
            voice,
            name="voice.ogg",
            media_type="audio/ogg",
            msgtype="m.audio",
            more={"org.matrix.msc3245.voice": {}},
        )
        await alice.wait_for_text(agent.user_id, "voice.ogg", room_id=room)
        assert "voice.ogg" in house.words()[-1]
        kept = {path.read_bytes() for path in house.profile.attachments.iterdir()}
        assert kept == {picture, b"the words of the file", voice}


async def test_a_file_that_is_too_large_is_refused_with_words(
    synapse: Synapse, house: House
) -> None:
    async with an_agent(synapse, house, file_mb=1) as agent, Person.on(synapse) as alice:
        room = await meet(agent, alice)
        data = bytes(1024 * 1024 + 1)
        await alice.send_file(room, data, name="huge.bin", media_type="application/octet-stream")
        told = await alice.wait_for_text(agent.user_id, "huge.bin", room_id=room)
        assert "1 MB" in told.text
        # One that says it is small.
        small: dict[str, Any] = {"info": {"mimetype": "application/octet-stream", "size": 10}}
        await alice.send_file(room, data, name="sly.bin", more=small)
        told = await alice.wait_for_text(agent.user_id, "sly.bin", room_id=room)
        assert "larger than 1 MB" in told.text
        attachments = house.profile.attachments
        assert not attachments.is_dir() or not list(attachments.iterdir())


@both
async def test_files_of_the_workspace_go_out_with_the_answer(
    synapse: Synapse, house: House, scenes: Scenes, encrypted: bool
) -> None:
    picture, notes = a_picture(), secrets.token_bytes(100_000)
    (house.profile.workspace / "dot.png").write_bytes(picture)
    (house.profile.workspace / "notes.bin").write_bytes(notes)
    sent = [("send_file", {"path": name}) for name in ("dot.png", "notes.bin")]
    scenes.when("send them", calls(*sent), Reply(text="Here they are."))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=encrypted)
        await alice.send(room, "send them")
        image = await alice.wait_for_message(lambda each: each.kind == "m.image")
        file = await alice.wait_for_message(lambda each: each.kind == "m.file")
        await alice.wait_for_text(agent.user_id, "Here they are.", room_id=room)
        for message, name, data in ((image, "dot.png", picture), (file, "notes.bin", notes)):
            assert (message.sender, message.room_id) == (agent.user_id, room)
            assert (message.encrypted, "file" in message.content) == (encrypted, encrypted)
            assert message.content.get("filename", message.text) == name
            assert await alice.download(message.content) == data
        assert image.content["info"]["mimetype"] == "image/png"
