"""What a remote agent is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.agent.person import Soul, UserSettings
from parley.backends.base import Turn
from parley.backends.proxy.files import read_files
from parley.backends.proxy.request import Files, asked_of, body_of, context_prompt, headers_of
from parley.protocol import (
    Attachment,
    ChatMessage,
    Request,
    SessionSource,
    ToolCall,
    ToolSpec,
    Wishes,
)
from tests.backends.proxy.builders import KEY, PLAIN, a_turn

GROUP = SessionSource(
    "matrix", "!r:example.org", "group", user_name="Ann", chat_name="Garden\n\nParty"
)


def body(turn: Turn, files: Files | None = None) -> dict[str, Any]:
    return body_of(turn, asked_of(turn), model="parley", files=files)


def messages(turn: Turn, files: Files | None = None) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = body(turn, files)["messages"]
    return sent


def requested(*given: ChatMessage, **more: Any) -> Request:
    return Request("r1", given, **more)


# ── the message and what came before ──


def test_a_plain_message_is_all_that_is_sent() -> None:
    assert body(a_turn("hello")) == {
        "model": "parley",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_place_and_person_come_first_then_the_history_then_the_message() -> None:
    history = [ChatMessage("user", "Hello"), ChatMessage("assistant", "Hi there!")]
    sent = messages(a_turn("How are you?", history=history, source=GROUP))
    assert sent == [
        {
            "role": "system",
            "content": "You are talking in Matrix with Ann in the group Garden Party.",
        },
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi there!"},
        {"role": "user", "content": "How are you?"},
    ]


@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        (PLAIN, ""),
        (SessionSource("api", "key/s1", user_id="key"), ""),
        (SessionSource("terminal", user_name="  "), ""),
        (SessionSource("terminal", user_name="Ann"), "You are talking in a terminal with Ann."),
        (SessionSource("irc", chat_type="group"), "You are talking in Irc in a group."),
    ],
)
def test_nothing_is_said_of_a_place_that_says_nothing(source: SessionSource, prompt: str) -> None:
    assert context_prompt(source) == prompt


def test_a_name_is_one_line_and_no_longer_than_a_name() -> None:
    prompt = context_prompt(SessionSource("irc", user_name="A\n\nIgnore " + "x" * 1000))
    assert "\n" not in prompt
    assert len(prompt) < 200


def test_tool_messages_and_empty_replies_of_the_history_are_left_out() -> None:
    history = [
        ChatMessage("user", "search for X"),
        ChatMessage("assistant", "", tool_calls=(ToolCall("tc1", "search"),)),
        ChatMessage("tool", "results…", tool_call_id="tc1"),
        ChatMessage("assistant", "Found results."),
        ChatMessage("assistant", ""),
        ChatMessage("user", ""),
    ]
    sent = messages(a_turn("tell me more", history=history))
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert all(message["content"] for message in sent)
    assert all("tool_calls" not in message for message in sent)


def test_a_reply_with_calls_of_ours_keeps_its_words() -> None:
    history = [
        ChatMessage("user", "time?"),
        ChatMessage("assistant", "I look.", tool_calls=(ToolCall("tc1", "now"),)),
        ChatMessage("tool", "noon", tool_call_id="tc1"),
    ]
    sent = messages(a_turn("and?", history=history))
    assert sent[1] == {"role": "assistant", "content": "I look."}
    assert len(sent) == 3


def test_a_failed_reply_is_left_out_and_an_interrupted_one_is_marked() -> None:
    history = [
        ChatMessage("user", "a"),
        ChatMessage("assistant", "Proxy error (500): x.", note="failed"),
        ChatMessage("user", "b"),
        ChatMessage("assistant", "half", note="interrupted"),
    ]
    contents = [message["content"] for message in messages(a_turn("c", history=history))]
    assert contents[:2] == ["a", "b"]
    assert contents[2].startswith("half\n[")
    assert contents[3] == "c"


def test_a_resumed_turn_asks_the_same_again() -> None:
    question = ChatMessage("user", "q")
    progress = [question, ChatMessage("assistant", "step"), ChatMessage("user", "more")]
    again = a_turn(progress=progress, attempt=2)
    assert [message["content"] for message in messages(again)] == ["q", "more"]


# ── headers ──


def test_the_headers_name_the_session_and_ask_for_events() -> None:
    assert headers_of(a_turn(), key=None) == {
        "Accept": "text/event-stream",
        "X-Hermes-Session-Id": "sess-123",
        "X-Parley-Events": "1",
        "X-Parley-History": "whole",
        "X-Parley-Hops": "1",
    }


def test_a_request_that_was_handed_on_before_says_how_often() -> None:
    asked = replace(requested(ChatMessage("user", "hi")), hops=3)
    assert headers_of(a_turn(request=asked), key=None)["X-Parley-Hops"] == "4"


def test_a_key_goes_along_when_there_is_one() -> None:
    assert headers_of(a_turn(), key=KEY)["Authorization"] == f"Bearer {KEY}"
    assert "Authorization" not in headers_of(a_turn(), key="")


def test_the_scope_of_memory_goes_along_when_a_program_names_one() -> None:
    asked = requested(ChatMessage("user", "hi"), memory_key="team-7")
    assert headers_of(a_turn(request=asked), key=None)["X-Hermes-Session-Key"] == "team-7"
    asked = requested(ChatMessage("user", "hi"), memory_key="a\r\nb")
    assert "X-Hermes-Session-Key" not in headers_of(a_turn(request=asked), key=None)


# ── a program's own wishes and tools ──


def test_the_wishes_of_a_program_go_along() -> None:
    wishes = Wishes(
        max_output_tokens=5,
        temperature=0.0,
        top_p=0.5,
        seed=7,
        stop=("x", "y"),
        tool="find",
        parallel_tool_calls=False,
        response_format={"type": "json_object"},
    )
    tool = ToolSpec("find", "Finds.", {"type": "object"})
    asked = requested(
        ChatMessage("user", "hi"), instructions="Be brief.", tools=(tool,), wishes=wishes
    )
    sent = body(a_turn(request=asked))
    assert sent.pop("messages")[0] == {"role": "system", "content": "Be brief."}
    assert sent == {
        "model": "parley",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "find",
                    "description": "Finds.",
                    "parameters": {"type": "object"},
                },
            }
        ],
        "max_tokens": 5,
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 7,
        "stop": ["x", "y"],
        "tool_choice": {"type": "function", "function": {"name": "find"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
    }


def test_what_the_person_wishes_stands_between_the_place_and_the_instructions() -> None:
    asked = requested(ChatMessage("user", "hi"), instructions="Be brief.")
    plain = a_turn(request=asked, source=GROUP)
    person = UserSettings(soul=Soul("Ada\nIgnore", " Rhyme. "))
    [system, _] = messages(replace(plain, person=person))
    assert system["content"].endswith(
        "Garden Party.\n\nThis person calls you Ada Ignore.\n"
        "They wish, within what you may do:\nRhyme.\n\nBe brief."
    )
    assert messages(replace(plain, person=UserSettings())) == messages(plain)


def test_instructions_follow_the_place() -> None:
    asked = requested(ChatMessage("user", "hi"), instructions=" Be brief.\n")
    [system, _] = messages(a_turn(request=asked, source=GROUP))
    assert system["content"].endswith("Garden Party.\n\nBe brief.")


def calls_and_results() -> Sequence[ChatMessage]:
    return (
        ChatMessage("user", "find it"),
        ChatMessage("assistant", "", tool_calls=(ToolCall("c1", "find", {"b": 1, "a": 2}),)),
        ChatMessage("tool", "found", tool_call_id="c1"),
    )


@pytest.mark.parametrize("named", [True, False])
def test_calls_of_a_program_and_their_results_go_along(named: bool) -> None:
    question, reply, result = calls_and_results()
    tools = (ToolSpec("find", "", {}),) if named else ()
    given = (result,) if named else (question, reply, result)
    turn = a_turn(
        history=[question, reply], progress=[result], request=requested(*given, tools=tools)
    )
    assert messages(turn) == [
        {"role": "user", "content": "find it"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "find", "arguments": '{"a":2,"b":1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ]


def test_calls_that_were_ours_stay_here_though_a_program_has_tools() -> None:
    asked = requested(ChatMessage("user", "hi"), tools=(ToolSpec("other", "", {}),))
    turn = a_turn("hi", history=calls_and_results(), request=asked)
    assert [message["role"] for message in messages(turn)] == ["user", "user"]


# ── files ──


@pytest.fixture
def picture(tmp_path: Path) -> Attachment:
    file = tmp_path / "a.png"
    file.write_bytes(b"\x89PNG")
    return Attachment("a.png", "image/png", str(file), 4)


@pytest.fixture
def letter(tmp_path: Path) -> Attachment:
    file = tmp_path / "b.txt"
    file.write_bytes(b"dear")
    return Attachment("b.txt", "text/plain; charset=utf-8", str(file), 4)


def content(*items: Attachment, taken: bool, text: str = "look") -> Any:
    message = ChatMessage("user", text, attachments=items)
    [sent] = messages(a_turn(progress=[message]), read_files(items, taken=taken))
    return sent["content"]


def test_a_picture_goes_along_as_a_data_url(picture: Attachment) -> None:
    assert content(picture, taken=False) == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
    ]
    [only] = content(picture, taken=False, text="")
    assert only["type"] == "image_url"


def test_a_picture_on_the_web_goes_along_as_its_address() -> None:
    item = Attachment("c.png", "image/png", "https://example.org/c.png", 0)
    [_, part] = content(item, taken=False)
    assert part == {"type": "image_url", "image_url": {"url": "https://example.org/c.png"}}


def test_a_file_goes_along_to_whom_takes_files(letter: Attachment) -> None:
    [_, part] = content(letter, taken=True)
    url = "data:text/plain;charset=utf-8;base64,ZGVhcg=="
    assert part == {"type": "file", "file": {"filename": "b.txt", "file_data": url}}


def test_a_file_that_does_not_go_along_is_named_and_it_is_said_so(letter: Attachment) -> None:
    sent = content(letter, taken=False)
    assert sent.startswith("look\n[file: b.txt, text/plain; charset=utf-8, 4 bytes; it was not ")
    assert "dear" not in sent


def test_a_file_that_is_gone_or_too_large_is_named(tmp_path: Path) -> None:
    gone = Attachment("x.png", "image/png", str(tmp_path / "x.png"), 4)
    assert "can no longer be read" in content(gone, taken=True)
    big = tmp_path / "big.png"
    with big.open("wb") as file:
        file.truncate(21 * 1024 * 1024)
    assert "too large" in content(Attachment("b", "image/png", str(big), 1), taken=True)


def test_a_file_of_the_history_is_named_only(picture: Attachment) -> None:
    before = ChatMessage("user", "see", attachments=(picture,))
    sent = messages(a_turn(history=[before]))
    assert sent[0]["content"] == "see\n[file: a.png, image/png, 4 bytes]"
