"""Files that come with messages: what the model gets to see of them, and what is only named."""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.providers import attachments
from parley.agent.providers.attachments import Takes, load_attachments
from parley.agent.providers.base import ModelRequest
from parley.agent.providers.local.history import wire_messages
from parley.agent.providers.openai import OpenAIProvider
from parley.protocol import Attachment, ChatMessage
from tests.agent.providers.builders import failure, final, openai, text_of
from tests.agent.providers.test_anthropic import claude, end, events, start, text
from tests.servers.scripted_model import Reply, ScriptedModel

PNG = b"\x89PNG\r\n\x1a\n-not-really"


def stored(path: Path, data: bytes, media_type: str) -> Attachment:
    path.write_bytes(data)
    return Attachment(path.name, media_type, str(path), len(data))


def picture(folder: Path, name: str = "cat.png", media_type: str = "image/png") -> Attachment:
    return stored(folder / name, PNG + name.encode(), media_type)


def saying(words: str, *files: Attachment) -> ChatMessage:
    return ChatMessage("user", words, attachments=files)


def request(*messages: ChatMessage) -> ModelRequest:
    return ModelRequest("", messages)


async def openai_content(*messages: ChatMessage) -> list[Any]:
    async with ScriptedModel() as server:
        await final(openai(server), request(*messages))
    return [message["content"] for message in server.requests[0].json["messages"]]


async def anthropic_blocks(*messages: ChatMessage) -> list[Any]:
    async with ScriptedModel(lambda _: events(start(), *text("a"), *end())) as server:
        await final(claude(server), request(*messages))
    turns = server.requests[0].json["messages"]
    blocks = [block for turn in turns for block in turn["content"]]
    for block in blocks:
        block.pop("cache_control", None)
    return blocks


# ── pictures ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "told", "sent"),
    [
        ("a.png", "image/png", "image/png"),
        ("a.jpg", "image/jpg", "image/jpeg"),
        ("a.gif", "IMAGE/GIF; x=1", "image/gif"),
        ("a.webp", "image/webp", "image/webp"),
        ("a.png", "application/octet-stream", "image/png"),
    ],
)
async def test_a_picture_reaches_an_openai_server_whole(
    tmp_path: Path, name: str, told: str, sent: str
) -> None:
    file = picture(tmp_path, name, told)
    [content] = await openai_content(saying("what is it", file))
    assert content[0] == {"type": "text", "text": "what is it"}
    head, _, data = content[1]["image_url"]["url"].partition(",")
    assert (content[1]["type"], head) == ("image_url", f"data:{sent};base64")
    assert b64decode(data) == Path(file.path).read_bytes()


async def test_a_picture_without_words_is_sent_alone(tmp_path: Path) -> None:
    [content] = await openai_content(saying("", picture(tmp_path)))
    assert [part["type"] for part in content] == ["image_url"]


async def test_a_picture_reaches_anthropic_whole(tmp_path: Path) -> None:
    file = picture(tmp_path)
    assert await anthropic_blocks(saying("what is it", file)) == [
        {"type": "text", "text": "what is it"},
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": "image/png",
                "data": b64encode(Path(file.path).read_bytes()).decode(),
            },
        },
    ]


async def test_a_picture_on_the_web_is_sent_by_its_address() -> None:
    address = "https://example.org/cat.png"
    message = saying("look", Attachment("cat.png", "image/*", address, 0))
    [content] = await openai_content(message)
    assert content[1] == {"type": "image_url", "image_url": {"url": address}}
    assert (await anthropic_blocks(message))[1] == {
        "type": "image",
        "source": {"type": "url", "url": address},
    }


async def test_only_the_last_messages_with_files_show_their_pictures(tmp_path: Path) -> None:
    messages: list[ChatMessage] = []
    for number in range(6):
        messages.append(saying(f"see {number}", picture(tmp_path, f"{number}.png")))
        messages.append(ChatMessage("assistant", "I see."))
    contents = (await openai_content(*messages, saying("which was first")))[::2]
    assert contents[0].startswith("see 0\n[file: 0.png, image/png, ")
    assert contents[1].startswith("see 1\n[file: 1.png, image/png, ")
    assert [type(content) for content in contents] == [str, str, list, list, list, list, str]


async def test_too_large_a_picture_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = picture(tmp_path, "large.png"), stored(tmp_path / "s.png", b"x", "image/png")
    monkeypatch.setattr(attachments, "_SHOWN_BYTES", large.size - 1)
    [content] = await openai_content(saying("see", large, small))
    assert [part["type"] for part in content] == ["text", "image_url"]
    assert content[0]["text"] == f"see\n[file: large.png, image/png, {large.size} bytes]"


async def test_all_files_together_are_bounded_and_the_newest_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = picture(tmp_path, "a.png"), picture(tmp_path, "b.png")
    monkeypatch.setattr(attachments, "_ALL_BYTES", old.size + new.size - 1)
    contents = await openai_content(saying("old", old), saying("new", new))
    assert [type(content) for content in contents] == [str, list]


async def test_the_beginning_stays_the_same_bytes_while_pictures_are_shown(tmp_path: Path) -> None:
    first = (saying("see", picture(tmp_path), stored(tmp_path / "a.md", b"# A", "text/markdown")),)
    more = (*first, ChatMessage("assistant", "a cat"), saying("and", picture(tmp_path, "b.png")))
    async with ScriptedModel() as server:
        provider = openai(server)
        for messages in (first, more):
            [_ async for _ in provider.stream(request(*messages))]
        await provider.close()
    one, two = (sent.body for sent in server.requests)
    assert two.startswith(one[: one.rindex(b'],"stream"')])


async def test_reading_files_does_not_hold_the_others_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    async with asyncio.timeout(60):
        [content] = await openai_content(
            saying("see", Attachment("p.png", "image/png", str(pipe), 1))
        )
    assert content == "see\n[file: p.png, image/png, 1 bytes]"


# ── models that cannot see ────────────────────────────────────────────────────────────────────


def blind(words: str, *, status: int = 400) -> Any:
    def script(asked: Mapping[str, Any]) -> Reply | None:
        shown = '"image_url"' in json.dumps(asked) or '"image"' in json.dumps(asked)
        return (
            Reply(status=status, body=json.dumps({"error": {"message": words}})) if shown else None
        )

    return script


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "Invalid content type. image_url is only supported by certain models."),
        (422, "unknown variant `image_url`, expected `text`"),
        (400, "scripted is not a multimodal model"),
        (400, "messages[0].content must be a string"),
        (404, "No endpoints found that support image input"),
        (500, "image input is not supported - hint: provide the mmproj"),
    ],
)
async def test_a_model_that_cannot_see_is_said_so(tmp_path: Path, status: int, words: str) -> None:
    async with ScriptedModel(blind(words, status=status)) as server:
        error = await failure(openai(server), request(saying("see", picture(tmp_path))))
    assert (error.kind, server.total) == ("unsupported", 1)
    assert str(error).startswith("here's model scripted cannot see pictures: ")
    assert not error.worth_retrying


async def test_anthropics_blind_models_are_said_so_too(tmp_path: Path) -> None:
    async with ScriptedModel(blind("this model does not support image input")) as server:
        error = await failure(claude(server), request(saying("see", picture(tmp_path))))
    assert error.kind == "unsupported"
    assert "claude's model c-1 cannot see pictures" in str(error)


@pytest.mark.parametrize(
    "words", ["Could not process image", "image exceeds 5 MB maximum", "Failed to download image"]
)
async def test_a_picture_that_is_no_good_is_refused_in_the_servers_words(
    tmp_path: Path, words: str
) -> None:
    async with ScriptedModel(blind(words)) as server:
        error = await failure(openai(server), request(saying("see", picture(tmp_path))))
    assert error.kind == "refused"
    assert words in str(error)


@pytest.mark.parametrize(
    ("words", "asked"), [("not a multimodal model", 3), ("Could not process image", 4)]
)
async def test_a_refused_picture_does_not_end_the_conversation(
    tmp_path: Path, words: str, asked: int
) -> None:
    messages = (saying("see", picture(tmp_path)), saying("then tell me a joke"))
    async with ScriptedModel(blind(words)) as server:
        provider = openai(server)
        for _ in range(2):
            got = [event async for event in provider.stream(request(*messages))]
            assert "tell me a joke" in text_of(got)[0]
        await provider.close()
        assert server.total == asked  # one that cannot see is known from then on
    assert "[file: cat.png" in server.requests[-1].json["messages"][0]["content"]


async def test_a_model_named_after_its_vision_is_not_blind_for_that(tmp_path: Path) -> None:
    body = json.dumps({"error": {"message": "The model `vision-1` does not exist"}})
    async with ScriptedModel(lambda _: Reply(status=404, body=body)) as server:
        provider = OpenAIProvider(
            "here", base_url=server.base_url, api_key=None, model="vision-1", context_window=8192
        )
        error = await failure(provider, request(saying("see", picture(tmp_path))))
    assert error.kind == "not_found"


# ── documents and texts ───────────────────────────────────────────────────────────────────────


async def test_a_pdf_reaches_anthropic_as_a_document(tmp_path: Path) -> None:
    pdf = stored(tmp_path / "a.pdf", b"%PDF-1", "application/pdf")
    [_, block] = await anthropic_blocks(saying("read", pdf))
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"}
    assert block == {"type": "document", "source": source, "title": "a.pdf"}


def test_openai_itself_gets_a_pdf_as_a_file(tmp_path: Path) -> None:
    pdf = stored(tmp_path / "a.pdf", b"%PDF-1", "application/pdf")
    archive = stored(tmp_path / "a.zip", b"PK", "application/zip")
    provider = OpenAIProvider(
        "openai",
        base_url="https://api.openai.com/v1",
        api_key="k",
        model="m",
        context_window=8192,
    )
    body = json.loads(provider._read_and_encode(request(saying("read", pdf, archive)), 0))
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "read\n[file: a.zip, application/zip, 2 bytes]"},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"},
        },
    ]


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.py", "application/octet-stream"),
        ("a.svg", "image/svg+xml"),
        ("a.ts", "video/mp2t"),
    ],
)
async def test_a_short_text_is_read_to_the_model(
    tmp_path: Path, name: str, media_type: str
) -> None:
    file = stored(tmp_path / name, "größe = 1\n".encode(), media_type)
    words = f"see\n[file: {name}, {media_type}, 12 bytes]\ngröße = 1\n[end of {name}]"
    message = saying("see", file)
    assert await openai_content(message) == [words]
    assert await anthropic_blocks(message) == [{"type": "text", "text": words}]


@pytest.mark.parametrize(
    "data", [b"x" * 200_001, b"caf\xe9", b"a\0b"], ids=["long", "not UTF-8", "binary"]
)
async def test_other_texts_are_named(tmp_path: Path, data: bytes) -> None:
    file = stored(tmp_path / "a.txt", data, "text/plain")
    assert await openai_content(saying("see", file)) == [
        f"see\n[file: a.txt, text/plain, {len(data)} bytes]"
    ]


async def test_a_file_that_was_deleted_is_named_as_gone(tmp_path: Path) -> None:
    file = picture(tmp_path)
    Path(file.path).unlink()
    gone = f"see\n[file: cat.png, image/png, {file.size} bytes; it is no longer there]"
    assert await openai_content(saying("see", file)) == [gone]
    assert await anthropic_blocks(saying("see", file)) == [{"type": "text", "text": gone}]


# ── the local model's words ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("with_tools", [True, False])
def test_the_local_model_reads_texts_and_is_told_that_it_sees_no_pictures(
    tmp_path: Path, with_tools: bool
) -> None:
    short = stored(tmp_path / "a.txt", b"milk", "text/plain")
    long = stored(tmp_path / "b.txt", b"x" * 101, "text/plain")
    asked = request(saying("see", short, long, picture(tmp_path)))
    loaded = load_attachments(asked.messages, Takes(text_bytes=100))
    message = wire_messages(asked, with_tools=with_tools, files=loaded)[-1]
    assert message["content"].splitlines() == [
        "see",
        "[file: a.txt, text/plain, 4 bytes]",
        "milk",
        "[end of a.txt]",
        "[file: b.txt, text/plain, 101 bytes]",
        f"[file: cat.png, image/png, {len(PNG) + 7} bytes; this model cannot see pictures]",
    ]


# ── whatever comes ────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant"]),
            st.lists(st.sampled_from(["png", "gone", "remote", "text", "zip"]), max_size=3),
        ),
        max_size=9,
    )
)
def test_every_file_is_shown_or_named_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, shape: list[tuple[Any, list[str]]]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    known = {
        "png": picture(folder, "p.png"),
        "gone": Attachment("g.png", "image/png", str(folder / "g.png"), 1),
        "remote": Attachment("r.png", "image/png", "https://example.org/r.png", 0),
        "text": stored(folder / "t.txt", b"t", "text/plain"),
        "zip": stored(folder / "z.zip", b"z", "application/zip"),
    }
    messages = [
        ChatMessage(role, "x", attachments=tuple(known[kind] for kind in kinds))
        for role, kinds in shape
    ]
    loaded = load_attachments(messages, Takes(pictures=True))
    for place, message in enumerate(messages):
        parts = list(attachments.parts_of(message, place, loaded))
        assert len(parts) == len(message.attachments)
        again = attachments.parts_of(replace(message), place, loaded)
        assert list(again) == parts
    shown = [
        place
        for place, message in enumerate(messages)
        for part in attachments.parts_of(message, place, loaded)
        if isinstance(part, attachments.Shown)
    ]
    assert all(messages[place].role == "user" for place in shown)
    assert len(set(shown)) <= 4
