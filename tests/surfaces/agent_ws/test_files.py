"""Files, pictures and voice with messages and with answers."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from parley.protocol import Attachment, Failed, Final
from parley.surfaces.agent_ws.answer import Answer
from tests.surfaces.agent_ws.line import ALL, DirectHouse, text_of

_PNG = b"\x89PNG\r\n\x1a\n" + b"picture" * 10


def _file(name: str, data: bytes, media_type: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "media_type": media_type,
        "size": len(data),
        "data": base64.b64encode(data).decode(),
    }


async def test_pictures_texts_and_voice_reach_the_agent(direct: DirectHouse) -> None:
    files = [
        _file("a.png", _PNG, "image/png"),
        _file("../../notes.txt", b"remember the milk", "text/plain; charset=utf-8"),
        _file("voice.ogg", b"OggS voice", "audio/ogg; codecs=opus"),
    ]
    async with direct.line(knows=ALL) as line:
        await line.ask("look", attachments=files, id="m1")
    content = direct.house.model.requests[-1].json["messages"][-1]["content"]
    shown = str(content)
    assert base64.b64encode(_PNG).decode() in shown
    assert "remember the milk" in shown
    assert "voice.ogg" in shown
    assert "../" not in shown
    store = direct.house.store
    assert store is not None
    [record] = [one for one in await store.sessions() if ":direct:" in one.lane]
    kept = (await store.transcript(record.id))[0].message.attachments
    assert [(each.name, each.media_type) for each in kept] == [
        ("a.png", "image/png"),
        ("notes.txt", "text/plain"),
        ("voice.ogg", "audio/ogg"),
    ]
    folder = direct.house.profile.attachments
    assert all(Path(each.path).parent == folder for each in kept)
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("data", "code"),
    [("not base64!", "invalid_base64"), ("", "bad_message"), ("A" * 28_000_000, "file_too_large")],
    ids=["not-base64", "empty", "too-large"],
)
async def test_a_file_that_cannot_be_taken_is_an_error_and_the_connection_stays(
    direct: DirectHouse, data: str, code: str
) -> None:
    async with direct.line(knows=ALL) as line:
        [error] = await line.exchange("look", attachments=[{"name": "x", "data": data}], id="m1")
        assert (error["code"], error["id"]) == (code, "m1")
        assert await line.ask("hello") == "echo: hello"


async def _ended(reply: Final | Failed, knows: tuple[str, ...]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(frame: Any) -> None:
        sent.append(frame)

    await Answer(send, lambda name: name in knows, None).end(reply, None)
    return sent


async def test_files_of_an_answer_go_to_whoever_takes_them_and_others_are_told(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x"
    path.write_bytes(_PNG)
    kept = Attachment("a.png", "image/png", str(path), len(_PNG))
    gone = Attachment("b.txt", "text/plain", str(tmp_path / "gone"), 3)
    reply = Final("Here it is.", attachments=(kept, gone))
    frames = await _ended(reply, ALL)
    assert frames[1] == {"type": "AGENT_EVENT_FILE", **_file("a.png", _PNG, "image/png")}
    assert text_of(frames) == "Here it is.\n\n[b.txt: this file is gone.]"
    plain = await _ended(reply, ())
    assert [each["type"] for each in plain] == [
        "AGENT_EVENT_TEXT_CHUNK",
        "AGENT_EVENT_TEXT_CHUNK",
        "AGENT_EVENT_END",
    ]
    assert "a.png: a file, which cannot be sent over this connection." in text_of(plain)
