"""The Messages format: what is sent, and how replies are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.agent.providers.anthropic import AnthropicProvider
from parley.agent.providers.base import ErrorKind, ModelReply, ModelRequest
from parley.protocol import CallDelta, ChatMessage, ReasoningDelta, TextDelta, ToolCall, Usage
from tests.agent.providers.builders import KEY, NOW, ask, collect, failure, final, text_of
from tests.servers.scripted_model import Reply, ScriptedModel

MARK = {"cache_control": {"type": "ephemeral"}}


def claude(
    server: ScriptedModel, *, base_url: str | None = None, temperature: float | None = None
) -> AnthropicProvider:
    return AnthropicProvider(
        "claude",
        base_url=base_url or f"http://127.0.0.1:{server.port}",
        api_key=KEY,
        model="c-1",
        context_window=200_000,
        temperature=temperature,
        timeout_seconds=5,
    )


def events(*items: dict[str, Any]) -> Reply:
    return Reply(
        raw=tuple(f"event: {i['type']}\ndata: {json.dumps(i)}\n\n".encode() for i in items)
    )


def start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": usage}}


def text(*pieces: str, index: int = 0) -> list[dict[str, Any]]:
    block = {"type": "text", "text": ""}
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *(_delta(index, type="text_delta", text=piece) for piece in pieces),
        {"type": "content_block_stop", "index": index},
    ]


def tool(index: int, call_id: str, name: str, *pieces: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *(_delta(index, type="input_json_delta", partial_json=piece) for piece in pieces),
        {"type": "content_block_stop", "index": index},
    ]


def _delta(index: int, **fields: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def end(reason: str = "end_turn", **usage: int) -> list[dict[str, Any]]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]


async def test_text_and_usage_with_cache_numbers() -> None:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 30}
    reply = events(start(**usage), {"type": "ping"}, *text("hel", "lo"), *end(output_tokens=4))
    async with ScriptedModel(lambda _: reply) as server:
        got = await collect(claude(server))
    assert text_of(got) == ["hel", "lo"]
    assert got[-1] == ModelReply("hello", Usage("claude", "c-1", 240, 4, 30))


async def test_tool_calls_are_read() -> None:
    reply = events(
        start(),
        *text("let me see"),
        *tool(1, "t1", "now"),
        *tool(2, "t2", "read_file", '{"path"', ': "a"}'),
        *tool(3, "t3", "read_file", '{"path"'),
        *end("tool_use"),
    )
    async with ScriptedModel(lambda _: reply) as server:
        got = await collect(claude(server), ask(tools=(NOW,)))
    assert isinstance(got[-1], ModelReply)
    assert got[-1].tool_calls == (
        ToolCall("t1", "now"),
        ToolCall("t2", "read_file", {"path": "a"}),
        ToolCall("t3", "read_file", {"__malformed__": '{"path"'}),
    )
    assert got[1:-1] == [
        CallDelta(0, "t1", "now", ""),
        CallDelta(1, "t2", "read_file", ""),
        CallDelta(1, "t2", "read_file", '{"path"'),
        CallDelta(1, "t2", "read_file", ': "a"}'),
        CallDelta(2, "t3", "read_file", ""),
        CallDelta(2, "t3", "read_file", '{"path"'),
    ]


async def test_thinking_is_no_part_of_the_text() -> None:
    thinking = {"type": "thinking", "thinking": "hmm"}
    block = {"type": "content_block_start", "index": 0, "content_block": thinking}
    more = _delta(0, type="thinking_delta", thinking="well")
    reply = events(start(), block, more, *text("a", index=1), *end())
    async with ScriptedModel(lambda _: reply) as server:
        said = await collect(claude(server))
    assert said[:3] == [ReasoningDelta("hmm"), ReasoningDelta("well"), TextDelta("a")]
    assert isinstance(said[-1], ModelReply)
    assert said[-1].text == "a"


@pytest.mark.parametrize(
    ("reason", "complete"), [("max_tokens", False), ("end_turn", True), ("stop_sequence", True)]
)
async def test_the_length_limit_makes_a_reply_incomplete(reason: str, complete: bool) -> None:
    async with ScriptedModel(lambda _: events(start(), *text("a"), *end(reason))) as server:
        assert (await final(claude(server))).complete is complete


async def test_a_whole_answer_to_a_stream_request_is_understood() -> None:
    content = [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t", "name": "now", "input": {"x": 1}},
    ]
    usage = {"input_tokens": 3, "output_tokens": 2}
    whole = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": usage}
    async with ScriptedModel(lambda _: Reply(raw=(json.dumps(whole).encode(),))) as server:
        got = await final(claude(server))
    assert got == ModelReply("a", Usage("claude", "c-1", 3, 2), (ToolCall("t", "now", {"x": 1}),))


@pytest.mark.parametrize("cut_after", [None, 3])
async def test_a_stream_that_ends_half_way_is_broken(cut_after: int | None) -> None:
    half = events(start(), *text("a"))
    async with ScriptedModel(lambda _: Reply(raw=half.raw, cut_after=cut_after)) as server:
        assert (await failure(claude(server))).kind == "broken"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("overloaded_error", "overloaded"),
        ("api_error", "overloaded"),
        ("rate_limit_error", "rate_limited"),
        ("authentication_error", "auth"),
        ("invalid_request_error", "refused"),
    ],
)
async def test_an_error_event_is_understood(name: str, kind: ErrorKind) -> None:
    error = {"type": "error", "error": {"type": name, "message": "sorry"}}
    async with ScriptedModel(lambda _: events(start(), *text("a"), error)) as server:
        assert (await failure(claude(server))).kind == kind


async def test_a_prompt_that_is_too_long_is_said() -> None:
    error = {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}
    body = json.dumps({"type": "error", "error": error})
    async with ScriptedModel(lambda _: Reply(status=400, body=body)) as server:
        assert (await failure(claude(server))).kind == "too_long"


async def test_a_refusal_is_a_filtered_reply() -> None:
    async with ScriptedModel(lambda _: events(start(), *end("refusal"))) as server:
        reply = await final(claude(server))
    assert (reply.text, reply.filtered, reply.complete) == ("", True, False)


async def sent(*messages: ChatMessage, tools: bool = True, system: str = "Be brief.") -> Any:
    async with ScriptedModel(lambda _: events(start(), *text("a"), *end())) as server:
        await final(claude(server), ModelRequest(system, messages, (NOW,) if tools else ()))
    return server.requests[0]


async def test_the_request_holds_what_the_format_asks_for() -> None:
    request = await sent(ChatMessage("user", "hi"))
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == KEY
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert "Authorization" not in request.headers
    assert request.json == {
        "model": "c-1",
        "max_tokens": 8192,
        "tools": [
            {
                "name": "now",
                "description": "Tell the time.",
                "input_schema": {"type": "object", "properties": {}},
            }
        ],
        "system": [{"type": "text", "text": "Be brief.", **MARK}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", **MARK}]}],
        "stream": True,
    }


async def test_an_address_with_v1_is_as_good() -> None:
    async with ScriptedModel(lambda _: events(start(), *text("a"), *end())) as server:
        await final(claude(server, base_url=f"{server.base_url}/"))
    assert server.requests[0].path == "/v1/messages"


async def test_messages_of_the_same_side_become_one_and_results_follow_their_calls() -> None:
    request = await sent(
        ChatMessage("user", "one"),
        ChatMessage("user", "two"),
        ChatMessage("assistant", "so", tool_calls=(ToolCall("a.b:0", "now", {"z": 1, "a": 2}),)),
        ChatMessage("tool", "noon", tool_call_id="a.b:0", tool_name="now"),
        ChatMessage("user", "and?"),
        ChatMessage("assistant", " "),
        ChatMessage("user", ""),
        system="",
    )
    assert "system" not in request.json
    call = {"type": "tool_use", "id": "a_b_0", "name": "now", "input": {"a": 2, "z": 1}}
    assert request.json["messages"] == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two", **MARK}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "so"}, call]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a_b_0", "content": "noon"},
                {"type": "text", "text": "and?"},
                {"type": "text", "text": "(no text)", **MARK},
            ],
        },
    ]


async def test_arguments_are_sent_in_the_same_order_always() -> None:
    calls = (ToolCall("a", "now", {"z": {"y": 1, "b": 2}, "a": 2}),)
    request = await sent(ChatMessage("user", "x"), ChatMessage("assistant", tool_calls=calls))
    assert b'"input":{"a":2,"z":{"b":2,"y":1}}' in request.body


async def test_without_tools_earlier_calls_are_told_as_text() -> None:
    request = await sent(
        ChatMessage("assistant", tool_calls=(ToolCall("a", "now", {"x": 1}),)),
        ChatMessage("tool", "noon", tool_call_id="a", tool_name="now"),
        tools=False,
    )
    texts = [block["text"] for turn in request.json["messages"] for block in turn["content"]]
    assert texts == ["(no text)", '[used now {"x":1}]', "[result of now] noon"]
    assert [turn["role"] for turn in request.json["messages"]] == ["user", "assistant", "user"]


async def test_only_the_last_user_messages_are_marked() -> None:
    messages = [ChatMessage("user" if n % 2 == 0 else "assistant", str(n)) for n in range(9)]
    request = await sent(*messages)
    marked = [
        block["text"]
        for turn in request.json["messages"]
        for block in turn["content"]
        if "cache_control" in block
    ]
    assert marked == ["6", "8"]
