"""Pictures and files that go through both gateways to the model."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from parley.protocol import Attachment, InboundMessage
from tests.gateway.desk import Desk, at
from tests.proxy.houses import Pair
from tests.waiting import until

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE = "data:image/png;base64," + base64.b64encode(PIXEL).decode()


def a_file(folder: Path, name: str, media_type: str, content: bytes) -> Attachment:
    path = folder / name
    path.write_bytes(content)
    return Attachment(name, media_type, str(path), len(content))


async def send(desk: Desk, text: str, *files: Attachment) -> str:
    number = f"file-{len(desk.sent)}"
    await desk.admit(InboundMessage(at("one"), text, number, attachments=files))
    await until(lambda: desk.answer_to(number))
    found = desk.answer_to(number)
    assert found is not None
    return found.text


def pictures(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    parts = content if isinstance(content, list) else []
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def words(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


async def test_a_picture_reaches_the_far_model_and_is_still_there_later(
    pair: Pair, tmp_path: Path
) -> None:
    desk = await pair.open()
    await send(desk, "What is it?", a_file(tmp_path, "p.png", "image/png", PIXEL))
    [asked] = pair.far.asked()
    assert pictures(asked) == [PICTURE]
    assert words(asked) == "What is it?"
    await desk.ask("Are you sure?")
    first, _, last = pair.far.asked()
    assert pictures(first) == [PICTURE]
    assert words(last) == "Are you sure?"


async def test_a_picture_without_a_word_is_still_there_later(pair: Pair, tmp_path: Path) -> None:
    desk = await pair.open()
    await send(desk, "", a_file(tmp_path, "p.png", "image/png", PIXEL))
    await desk.ask("Well?")
    assert [pictures(message) for message in pair.far.asked()] == [[PICTURE], [], []]


async def test_a_letter_reaches_the_far_model(pair: Pair, tmp_path: Path) -> None:
    desk = await pair.open()
    await send(desk, "Read it.", a_file(tmp_path, "letter.txt", "text/plain", b"Dear canary"))
    [asked] = pair.far.asked()
    assert "Dear canary" in words(asked)
    assert "letter.txt" in words(asked)
    await desk.ask("And?")
    assert "Dear canary" in words(pair.far.asked()[0])
