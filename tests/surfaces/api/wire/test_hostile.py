"""Whatever a program sends, it is read or refused; nothing else ever happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.protocol import Request
from parley.surfaces.api.wire import BadRequest
from parley.surfaces.api.wire.chat_in import ChatCompletionRequest, read_chat
from parley.surfaces.api.wire.models import Part
from parley.surfaces.api.wire.parsed import ParsedRequest
from parley.surfaces.api.wire.responses_in import ResponseItem, ResponseRequest, read_response
from parley.surfaces.api.wire.runs import RunRequest, read_approval, read_run
from tests.surfaces.api.wire.builders import HI, PNG, Kept, data_url, user

Reader = Callable[..., ParsedRequest]
READERS: list[Reader] = [read_chat, read_response, read_run]

WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "tool",
        "system",
        "function",
        "message",
        "function_call",
        "function_call_output",
        "text",
        "input_text",
        "image_url",
        "input_image",
        "input_file",
        "file",
        "input_audio",
        "json_schema",
        "allowed_tools",
        "auto",
        "c1",
        "{}",
        '{"a":1}',
        "data:image/png;base64,AAAA",
        data_url(PNG),
        "https://example.org/a.png",
        "",
        "\ud800",
    ]
)
NAMES = sorted(
    {
        *ChatCompletionRequest.model_fields,
        *ResponseRequest.model_fields,
        *RunRequest.model_fields,
        *ResponseItem.model_fields,
        *Part.model_fields,
        *("role", "tool_calls", "tool_call_id", "id", "url", "data", "format", "name"),
        *("include_usage", "mode", "allowed_tools", "schema", "json_schema", "approval_id"),
    }
)
LEAVES = st.one_of(
    WORDS,
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**400, max_value=10**401),
    st.floats(),
    st.text(max_size=8),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=3)), inner, max_size=4),
    ),
    max_leaves=12,
)
MESSAGE_FIELDS = (
    "role type content tool_calls tool_call_id function_call call_id name arguments output"
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {}, optional={name: st.one_of(WORDS, VALUES) for name in MESSAGE_FIELDS.split()}
    ),
    max_size=4,
)
BODIES = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {"messages": MESSAGES, "input": MESSAGES},
        optional={name: VALUES for name in NAMES if name not in {"messages", "input"}},
    ),
    st.fixed_dictionaries(
        {"messages": st.just([HI]), "input": st.just("hi")},
        optional={name: VALUES for name in NAMES if name not in {"messages", "input"}},
    ),
)


def read_or_refuse(reader: Reader, body: object) -> None:
    try:
        asked = reader(body, Kept())
    except BadRequest as error:
        assert error.message.endswith(".")
        assert "\n" not in error.message
        assert len(error.message) < 500
        assert error.param is None or error.param.isprintable()
        return
    assert asked.messages[-1].role in {"user", "tool"}
    stored = Request(
        "r", asked.messages, asked.instructions, asked.tools, asked.wishes, lasting=True
    ).to_dict()
    written = json.dumps(stored, allow_nan=False, ensure_ascii=False).encode()
    assert b"\0" not in written
    assert Request.from_dict(json.loads(written)).messages == asked.messages


@pytest.mark.parametrize("reader", READERS)
@given(body=BODIES)
@settings(max_examples=60, deadline=None)
def test_anything_is_read_or_refused(reader: Reader, body: object) -> None:
    read_or_refuse(reader, body)


@given(body=VALUES)
def test_any_approval_is_read_or_refused(body: object) -> None:
    try:
        read_approval(body)
    except BadRequest as error:
        assert error.message.endswith(".")


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [HI], "tools": [{"function": {"name": "a", "parameters": nested(400)}}]},
        {"messages": nested(400)},
        {"messages": [HI], "whatever": nested(400)},
        {
            "messages": [
                HI,
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "c", "function": {"name": "a", "arguments": json.dumps(nested(150))}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "x"},
            ]
        },
    ],
)
def test_what_is_nested_too_deep_is_refused(body: Any) -> None:
    with pytest.raises(BadRequest) as found:
        read_chat(body, Kept())
    assert "levels deep" in found.value.message


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [1] * 1_000_000},
        {"messages": [HI] * 10_001},
        {"messages": [1] * 150_000},
        {"messages": [user([{"type": "text", "text": 1}] * 900)] * 50},
        {"messages": [user([{"type": "text", "text": "x"}] * 1001)]},
        {"messages": [HI], "tools": [{}] * 257},
        {"messages": [HI], "metadata": {str(n): n for n in range(50_000)}},
        {"messages": [HI], "stop": [1] * 150_000},
        {"messages": [HI], "modalities": [1] * 150_000},
        {"messages": [HI], "tool_choice": {"type": "allowed_tools", "tools": [1] * 150_000}},
    ],
)
def test_huge_counts_are_refused(body: Any) -> None:
    with pytest.raises(BadRequest) as found:
        read_chat(body, Kept())
    assert len(found.value.message) < 300


def test_notes_are_counted_before_each_is_read() -> None:
    with pytest.raises(BadRequest) as found:
        read_chat({"messages": [HI], "metadata": {str(n): n for n in range(50_000)}}, Kept())
    assert found.value.param == "metadata"


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 10**400, -(10**400)])
def test_a_number_that_could_not_be_written_again_is_refused(number: float) -> None:
    schema = {"type": "object", "properties": {"a": {"maximum": number}}}
    tool = {"type": "function", "function": {"name": "a", "parameters": schema}}
    with pytest.raises(BadRequest) as found:
        read_chat({"messages": [HI], "tools": [tool]}, Kept())
    assert found.value.param == "tools"


def test_a_field_with_a_strange_name_is_repeated_in_no_error() -> None:
    with pytest.raises(BadRequest) as found:
        read_chat({"messages": [HI], "metadata": {"a\n" + "b" * 5000: 1}}, Kept())
    assert found.value.param is not None
    assert len(found.value.param) < 100
    assert "\n" not in found.value.message
