"""Files that go out with a reply, to a real homeserver."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from parley.gateway.delivery import NotSent
from parley.protocol import Attachment
from parley.surfaces.matrix.pictures import picture_size
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.speaker import a_delivery, a_source, talking
from tests.waiting import until

both = pytest.mark.parametrize("encrypted", [False, True], ids=["open", "encrypted"])


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _attached(path: Path, data: bytes, media_type: str) -> Attachment:
    path.write_bytes(data)
    return Attachment(path.name, media_type, str(path), len(data))


@both
async def test_files_arrive_as_they_were_and_once(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    sent = {
        "dot.png": (_png(7, 5), "image/png", "m.image"),
        "big Ä.bin": (bytes(range(256)) * 8_000, "application/octet-stream", "m.file"),
        "talk.ogg": (b"OggS" + bytes(100), "audio/ogg", "m.audio"),
        "evil.svg": (b"<svg/>", "image/svg+xml", "m.file"),
    }
    files = [_attached(tmp_path / name, data, kind) for name, (data, kind, _) in sent.items()]
    gone = Attachment("gone.txt", "text/plain", str(tmp_path / "gone.txt"), 3)
    async with talking(synapse, tmp_path, encrypted=encrypted) as (speaker, person, room):
        bot = speaker.connection.user_id
        reply = a_delivery(a_source(room), "Here.", turn=1, attachments=(*files, gone))
        first = await speaker.deliver(reply)
        assert await speaker.deliver(reply) == first
        await person.wait_for_text(bot, "gone.txt is not there any more")
        messages = {each.text: each for each in person.from_sender(bot)}
        assert len(person.from_sender(bot)) == 6
        for name, (data, media_type, msgtype) in sent.items():
            found = messages[name]
            assert found.kind == msgtype
            assert found.encrypted is encrypted
            assert found.content["filename"] == name
            assert found.content["info"]["mimetype"] == media_type
            assert found.content["org.parley.agent"] == {"v": 1}
            assert ("file" in found.content) is encrypted
            assert await person.download(found.content) == data
        assert messages["dot.png"].content["info"]["w"] == 7
        assert messages["dot.png"].content["info"]["h"] == 5
        assert not speaker.marks.kept


async def test_what_was_uploaded_is_not_uploaded_again(synapse: Synapse, tmp_path: Path) -> None:
    file = _attached(tmp_path / "a.txt", b"one", "text/plain")
    async with talking(synapse, tmp_path) as (speaker, person, room):
        reply = a_delivery(a_source(room), "", turn=1, attachments=(file,))
        speaker.connection.note_encrypted(room)  # whose keys are not known: the send fails
        with pytest.raises(NotSent):
            await speaker.deliver(reply)
        (kept,) = speaker.marks.kept.values()
        content = {"algorithm": "m.megolm.v1.aes-sha2"}
        await person.set_state(room, "m.room.encryption", content)
        await until(lambda: speaker.connection.nio.rooms[room].encrypted)
        await until(lambda: person.is_encrypted(room))
        await speaker.deliver(reply)
        found = await person.wait_for_text(speaker.connection.user_id, "a.txt")
        assert found.content["file"]["url"] in kept
        assert await person.download(found.content) == b"one"


def test_the_size_of_a_picture_is_read_from_its_head() -> None:
    assert picture_size(_png(300, 2)) == (300, 2)
    assert picture_size(b"GIF89a" + struct.pack("<HH", 12, 13)) == (12, 13)
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08" + struct.pack(">HH", 20, 30) + bytes(9)
    assert picture_size(jpeg) == (30, 20)
    webp = b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + bytes([9, 0, 0, 19, 0, 0])
    assert picture_size(webp) == (10, 20)
    for junk in (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"hello" * 10):
        assert picture_size(junk) is None
