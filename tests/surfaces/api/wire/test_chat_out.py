"""Chat completions as the official client reads them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from parley.protocol import Final, ToolCall, Usage
from parley.surfaces.api.wire.chat_out import ChatChunks, chat_completion, finish_reason
from parley.surfaces.api.wire.encode import encode, remainder
from tests.surfaces.api.wire.reading import Canned, as_chunks, read_as

USAGE = Usage("p", "m", input_tokens=7, output_tokens=5, cached_tokens=2)
CALL = ToolCall("call_1", "weather", {"city": "Zürich"})
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def chunks(*, include_usage: bool = False) -> ChatChunks:
    return ChatChunks("chatcmpl-1", 1700000000, "default", include_usage=include_usage)


def test_a_reply_is_a_chat_completion() -> None:
    said = chat_completion("chatcmpl-1", 1700000000, "default", Final("Hello."), USAGE)
    read = read_as(ChatCompletion, said)
    assert read.choices[0].message.content == "Hello."
    assert read.choices[0].message.tool_calls is None
    assert read.choices[0].finish_reason == "stop"
    assert read.usage is not None
    assert (read.usage.prompt_tokens, read.usage.completion_tokens) == (7, 5)
    assert read.usage.total_tokens == 12
    assert read.usage.prompt_tokens_details is not None
    assert read.usage.prompt_tokens_details.cached_tokens == 2


def test_calls_are_given_with_their_arguments_as_text() -> None:
    ending = Final("", calls=(CALL, ToolCall("call_2", "time")))
    read = read_as(ChatCompletion, chat_completion("c", 1, "m", ending, None))
    choice = read.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    calls = choice.message.tool_calls or []
    assert [call.id for call in calls] == ["call_1", "call_2"]
    assert calls[0].type == "function"
    assert json.loads(calls[0].function.arguments) == {"city": "Zürich"}
    assert read.usage is None


def test_arguments_that_were_no_json_are_given_as_the_model_wrote_them() -> None:
    ending = Final("", calls=(ToolCall("c", "t", {"__malformed__": '{"city": '}),))
    read = read_as(ChatCompletion, chat_completion("c", 1, "m", ending, None))
    call = (read.choices[0].message.tool_calls or [])[0]
    assert call.type == "function"
    assert call.function.arguments == '{"city": '


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (Final("a"), "stop"),
        (Final("a", complete=False), "length"),
        (Final("a", calls=(CALL,)), "tool_calls"),
    ],
)
def test_the_reason_a_reply_ends_is_said(ending: Final, reason: str) -> None:
    assert finish_reason(ending) == reason


def test_every_chunk_is_one_the_client_knows() -> None:
    made = chunks(include_usage=True)
    sent = [
        made.role(),
        made.text("He"),
        made.text("llo"),
        made.calls((CALL, ToolCall("call_2", "time"))),
        made.finish("tool_calls"),
        made.usage(USAGE),
    ]
    assert all(b"\n" not in each and "usage" in json.loads(each) for each in sent)
    read = [read_as(ChatCompletionChunk, json.loads(each)) for each in sent]
    assert read[0].choices[0].delta.role == "assistant"
    assert "".join(each.choices[0].delta.content or "" for each in read[:-1]) == "Hello"
    calls = read[3].choices[0].delta.tool_calls or []
    assert [(call.index, call.id) for call in calls] == [(0, "call_1"), (1, "call_2")]
    assert [each.choices[0].finish_reason for each in read[:-1]] == [None] * 4 + ["tool_calls"]
    assert read[-1].choices == []
    assert read[-1].usage is not None
    assert read[-1].usage.total_tokens == 12


def test_without_the_wish_no_chunk_speaks_of_usage() -> None:
    made = chunks()
    for each in (made.role(), made.text("a"), made.finish("stop")):
        assert "usage" not in json.loads(each)


@given(pieces=st.lists(TEXTS, max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_text_comes_through_the_clients_stream_unchanged(
    server: Canned, pieces: list[str]
) -> None:
    made = chunks()
    sent = [made.role(), *map(made.text, pieces), made.finish("stop")]
    read = server.chat_stream(as_chunks(sent))
    assert len(read) == len(sent)
    assert [each.choices[0].delta.content for each in read[1:-1]] == pieces


@given(st.text())
def test_a_chunk_is_one_line_of_valid_utf8_for_whoever_splits_lines(text: str) -> None:
    sent = chunks().text(text).decode("utf-8")
    assert sent.splitlines() == [sent]
    delta = json.loads(sent)["choices"][0]["delta"]["content"]
    assert delta == text.encode("utf-8", "replace").decode()


def test_a_whole_object_is_valid_utf8_too() -> None:
    sent = encode({"a": "x\ud800\u2028y", "é": [1, None]}).decode("utf-8")
    assert json.loads(sent) == {"a": "x?\u2028y", "é": [1, None]}
    assert sent.splitlines() == [sent]


@pytest.mark.parametrize(
    ("streamed", "reply", "rest"),
    [
        ("", "Hello", "Hello"),
        ("Hel", "Hello", "lo"),
        ("\n\nHel", "Hello", "lo"),
        ("Hello \n", "Hello", ""),
        (" ", "Hello", "Hello"),
        ("Good day", "Hello", None),
        ("Hello you", "Hello", None),
    ],
)
def test_what_is_left_of_a_reply(streamed: str, reply: str, rest: str | None) -> None:
    assert remainder(streamed, reply) == rest
