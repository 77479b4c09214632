"""The OpenAI format: what is sent, and how replies are read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import pytest

from parley.agent.providers.base import ModelReply, ModelRequest
from parley.agent.providers.openai import OpenAIProvider
from parley.protocol import (
    Attachment,
    CallDelta,
    ChatMessage,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    Usage,
)
from tests.agent.providers.builders import (
    KEY,
    NOW,
    ask,
    collect,
    delta,
    failure,
    final,
    openai,
    sse,
    text_of,
)
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.scripted_model import Usage as Tokens

HISTORY = (
    ChatMessage("user", "what time is it"),
    ChatMessage("assistant", tool_calls=(ToolCall("c1", "now", {"zone": "ü", "a": 1}),)),
    ChatMessage("tool", "noon", tool_call_id="c1", tool_name="now"),
    ChatMessage("assistant", "It is noon."),
    ChatMessage("assistant", ""),
    ChatMessage("user", "see", attachments=(Attachment("a.txt", "text/plain", "/x/a.txt", 3),)),
)


async def test_text_streams_and_ends_with_the_whole_reply() -> None:
    usage = Tokens(input=11, output=5, cached=8)
    async with ScriptedModel(lambda _: Reply("hello you", chunks=3, usage=usage)) as server:
        events = await collect(openai(server))
    assert text_of(events) == ["hel", "lo ", "you"]
    assert events[-1] == ModelReply("hello you", Usage("here", "scripted", 11, 5, 8))


async def test_the_request_holds_what_the_format_asks_for() -> None:
    async with ScriptedModel() as server:
        provider = openai(server, max_output_tokens=50, temperature=0.5)
        await final(provider, ModelRequest("Be brief.", HISTORY, (NOW,), max_output_tokens=90))
    [request] = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert request.json == {
        "model": "scripted",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "what time is it"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "now", "arguments": '{"a":1,"zone":"ü"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "noon"},
            {"role": "assistant", "content": "It is noon."},
            {
                "role": "user",
                "content": "see\n[file: a.txt, text/plain, 3 bytes; it is no longer there]",
            },
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "now",
                    "description": "Tell the time.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 50,
        "temperature": 0.5,
    }


async def test_without_a_key_there_is_no_authorization() -> None:
    async with ScriptedModel() as server:
        await final(openai(server, key=None))
    assert "Authorization" not in server.requests[0].headers


async def test_a_longer_history_begins_with_the_same_bytes() -> None:
    stored = tuple(ChatMessage.from_dict(message.to_dict()) for message in HISTORY)
    longer = (*stored, ChatMessage("assistant", "I see."), ChatMessage("user", "good"))
    async with ScriptedModel() as server:
        provider = openai(server)
        for messages in (HISTORY, stored, longer):
            [_ async for _ in provider.stream(ModelRequest("Be brief.", messages))]
        await provider.close()
    first, again, more = (request.body for request in server.requests)
    assert first == again
    prefix = first[: first.index(b"]", first.rindex(b'"see'))]
    assert more.startswith(prefix)


async def test_a_lone_surrogate_does_not_stop_a_message() -> None:
    async with ScriptedModel() as server:
        assert (await final(openai(server), ask("a\udcffb"))).text == "echo: a?b"


async def test_connections_are_used_again() -> None:
    async with ScriptedModel() as server:
        provider = openai(server)
        for _ in range(5):
            [_ async for _ in provider.stream(ask())]
        await provider.close()
        assert (server.total, server.connections) == (5, 1)


async def test_many_streams_run_side_by_side() -> None:
    async with ScriptedModel(delay=0.2) as server:
        provider = openai(server)

        async def one(number: int) -> str:
            events = [event async for event in provider.stream(ask(str(number)))]
            reply = events[-1]
            assert isinstance(reply, ModelReply)
            return reply.text

        replies = await asyncio.gather(*(one(number) for number in range(150)))
        await provider.close()
    assert replies == [f"echo: {number}" for number in range(150)]
    assert server.max_open_streams == 150


async def test_closing_early_stops_the_server() -> None:
    async with ScriptedModel(lambda _: Reply("a b c d", chunks=7, chunk_delay=30)) as server:
        provider = openai(server)
        async with aclosing(provider.stream(ask())) as events:
            assert await anext(events) == TextDelta("a")
        await server.until(lambda s: s.aborted == 1 and s.open_streams == 0)
        await provider.close()


async def test_cancelling_while_the_server_thinks_stops_it() -> None:
    async with ScriptedModel(delay=30) as server:
        provider = openai(server)
        task = asyncio.create_task(collect(provider))
        await server.until(lambda s: s.open_streams == 1)
        task.cancel()
        await server.until(lambda s: s.aborted == 1)
        with pytest.raises(asyncio.CancelledError):
            await task


# ── tool calls ────────────────────────────────────────────────────────────────────────────────


async def calls_from(*deltas: dict[str, Any]) -> tuple[ToolCall, ...]:
    reply = sse(*deltas, delta(finish="tool_calls"), "[DONE]")
    async with ScriptedModel(lambda _: reply) as server:
        return (await final(openai(server), ask(tools=(NOW,)))).tool_calls


def part(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return delta(tool_calls=list(entries))


def fragment(arguments: object = None, **fields: Any) -> dict[str, Any]:
    function = {"arguments": arguments, "name": fields.pop("name", None)}
    return {"function": {k: v for k, v in function.items() if v is not None}, **fields}


async def test_calls_are_put_together_from_fragments() -> None:
    calls = await calls_from(
        part(fragment("", index=0, id="a", name="now")),
        part(fragment('{"x"', index=0)),
        part(fragment("", index=1, id="b", name="read_file")),
        part(fragment(": 1}", index=0), fragment('{"path": "é"}', index=1)),
    )
    assert calls == (ToolCall("a", "now", {"x": 1}), ToolCall("b", "read_file", {"path": "é"}))


@pytest.mark.parametrize(
    "entries",
    [
        (fragment('{"n":1}', id="a", name="x"), fragment('{"n":2}', id="b", name="x")),
        (
            fragment('{"n":1}', id="a", name="x", index=0),
            fragment('{"n":2}', id="b", name="x", index=0),
        ),
        (fragment('{"n":1}', name="x"), fragment('{"n":2}', name="x")),
        (fragment({"n": 1}, name="x", index=0), fragment({"n": 2}, name="x", index=1)),
    ],
    ids=["no index", "the same index", "neither index nor id", "objects"],
)
async def test_whole_calls_stay_apart(entries: tuple[dict[str, Any], dict[str, Any]]) -> None:
    for parts in ((part(*entries),), tuple(part(entry) for entry in entries)):
        calls = await calls_from(*parts)
        assert [(call.name, call.arguments) for call in calls] == [("x", {"n": 1}), ("x", {"n": 2})]
        assert len({call.id for call in calls}) == 2
        assert all(call.id for call in calls)


async def test_calls_without_anything_but_a_name_stay_apart_in_one_list() -> None:
    calls = await calls_from(part(fragment(name="x"), fragment(name="x")))
    assert [(call.name, call.arguments) for call in calls] == [("x", {}), ("x", {})]


async def test_fragments_without_index_and_id_belong_to_the_last_call() -> None:
    calls = await calls_from(
        part(fragment('{"n"', id="a", name="x")), part(fragment(": 1")), part(fragment("}"))
    )
    assert calls == (ToolCall("a", "x", {"n": 1}),)


async def test_a_repeated_name_and_id_is_still_one_call() -> None:
    calls = await calls_from(
        part(fragment('{"n"', id="a", name="x", index=0)),
        part(fragment(": 1}", id="a", name="x", index=0)),
    )
    assert calls == (ToolCall("a", "x", {"n": 1}),)


@pytest.mark.parametrize("raw", ["", " ", "null", None])
async def test_no_arguments_are_an_empty_object(raw: str | None) -> None:
    assert await calls_from(part(fragment(raw, index=0, id="a", name="x"))) == (ToolCall("a", "x"),)


@pytest.mark.parametrize("raw", ['{"n": 1', "[1]", "now please", '{"n": NaN}', "[" * 100_000])
async def test_arguments_that_are_no_object_reach_the_agent_as_they_are(raw: str) -> None:
    [call] = await calls_from(part(fragment(raw, index=0, id="a", name="x")))
    assert call == ToolCall("a", "x", {"__malformed__": raw})


async def test_arguments_encoded_twice_are_understood() -> None:
    [call] = await calls_from(part(fragment('"{\\"n\\": 1}"', index=0, id="a", name="x")))
    assert call.arguments == {"n": 1}


# ── endings ───────────────────────────────────────────────────────────────────────────────────


async def reply_to(reply: Reply) -> ModelReply:
    async with ScriptedModel(lambda _: reply) as server:
        return await final(openai(server))


async def test_a_reply_cut_by_the_length_limit_is_not_complete() -> None:
    reply = await reply_to(Reply("half", finish_reason="length"))
    assert (reply.text, reply.complete) == ("half", False)


async def test_a_finish_reason_is_an_end_without_done() -> None:
    assert (await reply_to(sse(delta(content="a", finish="stop")))).text == "a"


async def test_done_is_an_end_without_a_finish_reason() -> None:
    assert (await reply_to(sse(delta(content="a"), "[DONE]"))).text == "a"


async def test_an_end_without_the_last_blank_line_is_read() -> None:
    whole = sse(delta(content="a"), delta(finish="stop"))
    assert whole.raw is not None
    assert (await reply_to(Reply(raw=(b"".join(whole.raw).rstrip(),)))).text == "a"


@pytest.mark.parametrize("cut_after", [None, 1], ids=["ends early", "connection cut"])
async def test_a_stream_that_ends_half_way_is_broken(cut_after: int | None) -> None:
    reply = sse(delta(content="half"))
    reply = Reply(raw=reply.raw, cut_after=cut_after)
    async with ScriptedModel(lambda _: reply) as server:
        error = await failure(openai(server))
    assert error.kind == "broken"
    assert error.worth_retrying


async def test_a_connection_cut_after_the_finish_reason_loses_nothing() -> None:
    reply = Reply(raw=sse(delta(content="all", finish="stop")).raw, cut_after=1)
    assert (await reply_to(reply)).text == "all"


async def test_calls_are_told_as_they_are_written() -> None:
    reply = sse(
        delta(tool_calls=[{"index": 0, "function": {"arguments": ""}}]),
        delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "now"}}]),
        delta(tool_calls=[{"index": 0, "function": {"name": "now", "arguments": '{"a"'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
        delta(finish="tool_calls"),
    )
    async with ScriptedModel(lambda _: reply) as server:
        *told, last = await collect(openai(server), ask(tools=(NOW,)))
    assert isinstance(last, ModelReply)
    first, second = last.tool_calls
    assert (first.arguments, second.id) == ({"a": 1}, "b")
    assert told == [
        CallDelta(0, first.id, "now", '{"a"'),
        CallDelta(1, "b", "now", ""),
        CallDelta(0, first.id, "now", ": 1}"),
    ]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_is_no_part_of_the_text(name: str) -> None:
    reply = sse(delta(content=None, **{name: "hmm"}), delta(content="a", finish="stop"))
    async with ScriptedModel(lambda _: reply) as server:
        events = await collect(openai(server))
    assert events[:2] == [ReasoningDelta("hmm"), TextDelta("a")]
    assert text_of(events) == ["a"]


async def test_content_in_parts_is_read() -> None:
    content = [{"type": "thinking", "text": "hmm"}, {"type": "text", "text": "a"}]
    assert (await reply_to(sse(delta(content=content, finish="stop")))).text == "a"


async def test_a_whole_json_answer_to_a_stream_request_is_understood() -> None:
    whole = Reply("hello", tool_calls=(("now", {"a": 1}),)).whole()
    reply = await reply_to(Reply(raw=(whole[:50], whole[50:]), content_type="application/json"))
    assert (reply.text, reply.usage.input_tokens) == ("hello", 7)
    assert reply.tool_calls[0].arguments == {"a": 1}


@pytest.mark.parametrize(
    "raw", [b"<html>hi</html>", b"{}", b'{"x"', b"[1]", b"", b"data: {nope\n\n", b"data: 1\n\n"]
)
async def test_an_answer_that_is_no_reply_is_broken(raw: bytes) -> None:
    async with ScriptedModel(lambda _: Reply(raw=(raw,) if raw else ())) as server:
        assert (await failure(openai(server))).kind == "broken"


async def test_odd_shapes_in_a_stream_are_passed_over() -> None:
    odd = {"choices": [None, {"delta": "x"}, {"index": 1, "delta": {"content": "other"}}]}
    reply = sse(odd, {"choices": None, "usage": "x"}, delta(content="a", finish="stop"), "[DONE]")
    assert (await reply_to(reply)).text == "a"


async def test_a_filtered_reply_says_so() -> None:
    async with ScriptedModel(lambda _: Reply(finish_reason="content_filter")) as server:
        reply = await final(openai(server))
    assert (reply.text, reply.filtered, reply.complete) == ("", True, False)


# ── servers that take less than we offer ──────────────────────────────────────────────────────


def picky(*, about: str, words: str) -> Mapping[str, Any]:
    def script(asked: Mapping[str, Any]) -> Reply | None:
        if about in asked:
            return Reply(status=400, body=f'{{"error": {{"message": "{words}"}}}}')
        return None

    return {"script": script}


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ("stream_options", "Unknown parameter: stream_options"),
        ("max_tokens", "'max_tokens' is not supported, use 'max_completion_tokens' instead."),
        ("temperature", "Unsupported value: 'temperature' does not support 0.5"),
    ],
)
async def test_an_option_that_a_server_refuses_is_left_out_from_then_on(
    about: str, words: str
) -> None:
    async with ScriptedModel(**picky(about=about, words=words)) as server:
        provider = openai(server, max_output_tokens=9, temperature=0.5)
        for _ in range(2):
            events = [event async for event in provider.stream(ask())]
            assert text_of(events) == ["echo: hi"]
        await provider.close()
    assert [about in request.json for request in server.requests] == [True, False, False]
    assert ("max_completion_tokens" in server.requests[-1].json) == (about == "max_tokens")


async def test_a_wrong_value_of_an_option_is_an_error_and_not_left_out() -> None:
    words = "temperature must be below 0.3"
    async with ScriptedModel(**picky(about="temperature", words=words)) as server:
        error = await failure(openai(server, temperature=0.5))
    assert (error.kind, server.total) == ("refused", 1)
    assert words in str(error)


async def test_check_makes_one_small_call() -> None:
    async with ScriptedModel() as server:
        provider = openai(server)
        await provider.check()
        await provider.close()
    assert server.requests[0].json["max_tokens"] == 64


async def test_a_query_in_the_address_is_kept() -> None:
    async with ScriptedModel() as server:
        provider = OpenAIProvider(
            "here",
            base_url=f"{server.base_url}/?api-version=1",
            api_key=None,
            model="m",
            context_window=8192,
        )
        assert (await final(provider)).text == "echo: hi"
    assert server.requests[0].path == "/v1/chat/completions?api-version=1"
