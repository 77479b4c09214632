"""A turn handed to a remote agent: the request it makes, and the result it comes to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from parley.backends.base import Backend
from parley.backends.proxy import ProxyBackend, proxy_url_of
from parley.config import ConfigError, Settings
from parley.protocol import (
    ChatMessage,
    Failed,
    Final,
    Request,
    SessionSource,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
    Wishes,
)
from parley.storage.contract import LeaseLost
from tests.backends.proxy.builders import (
    KEY,
    a_turn,
    all_of,
    backend_at,
    ending,
    proxied,
    run,
    sentence,
    served,
)
from tests.servers.raw_sse import Answer, Seen, as_json, chunk_of, said, stream

HISTORY = (ChatMessage("user", "prev"), ChatMessage("assistant", "ok"))


def test_the_address_is_that_of_the_settings() -> None:
    assert proxy_url_of(Settings()) is None
    given = Settings.model_validate({"gateway": {"proxy_url": " http://far:8642/ "}})
    assert proxy_url_of(given) == "http://far:8642"


async def test_the_request_is_as_it_should_be() -> None:
    async with proxied(stream("Hello", " world"), key=KEY) as (backend, far):
        source = SessionSource("matrix", "!room", "group", chat_name="Room", user_name="testuser")
        result = await backend.answer(a_turn("How are you?", history=HISTORY, source=source))
    [seen] = far.asked
    assert (seen.method, seen.path) == ("POST", "/v1/chat/completions")
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["x-hermes-session-id"] == "sess-123"
    assert seen.headers["x-parley-events"] == "1"
    assert seen.headers["accept"] == "text/event-stream"
    assert seen.headers["content-type"] == "application/json"
    assert seen.json["stream"] is True
    assert [message["role"] for message in seen.json["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert result.final_response == "Hello world"


async def test_the_result_has_everything_that_callers_look_for() -> None:
    async with proxied(stream("ans", "wer")) as (backend, _):
        result = await backend.answer(a_turn("hi", history=HISTORY))
    assert result.to_dict() == {
        "final_response": "answer",
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "answer"},
        ],
        "api_calls": 1,
        "tools": [],
        "history_offset": 2,
        "session_id": "sess-123",
    }


async def test_an_error_is_an_answer_of_no_call() -> None:
    refusal = Answer([b"Unauthorized: invalid API key"], 401)
    async with proxied(refusal, key=KEY) as (backend, _):
        result = await backend.answer(a_turn())
    assert result.final_response.startswith("Proxy error (401): Unauthorized: invalid API key")
    assert (result.api_calls, result.messages) == (0, [])


async def test_without_a_key_there_is_no_such_header() -> None:
    async with proxied(stream("ok")) as (backend, far):
        await run(backend)
    assert "authorization" not in far.asked[0].headers


async def test_without_anything_to_say_of_the_place_there_is_no_system_message() -> None:
    async with proxied(stream("ok")) as (backend, far):
        await run(backend, a_turn("hello"))
    assert far.asked[0].json["messages"] == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
async def test_an_address_may_end_in_v1_or_not(tail: str) -> None:
    async with proxied(stream("ok")) as (_, far):
        backend = backend_at(far.url + tail)
        await run(backend)
        await backend.close()
    assert far.asked[0].path == "/v1/chat/completions"


async def test_a_path_before_it_is_kept() -> None:
    async with proxied(stream("ok")) as (_, far):
        backend = backend_at(f"{far.url}/p/coder")
        await run(backend)
        await backend.close()
    assert far.asked[0].path == "/p/coder/v1/chat/completions"


async def test_the_model_is_parley_unless_the_settings_name_one() -> None:
    async with proxied(stream("ok")) as (backend, far):
        await run(backend)
    assert far.asked[0].json["model"] == "parley"
    async with proxied(stream("ok"), proxy_model="coder") as (backend, far):
        await run(backend)
    assert far.asked[0].json["model"] == "coder"


async def test_text_comes_as_it_is_said_and_then_whole() -> None:
    used = chunk_of({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    answer = Answer([said(content="a"), said(content="b"), used, b"data: [DONE]\n\n"])
    events = await served(answer)
    assert events == [
        TextDelta("a"),
        TextDelta("b"),
        Final("ab", Usage("proxy", "far", 3, 2)),
    ]


async def test_messages_that_came_meanwhile_go_along() -> None:
    async def steer() -> tuple[ChatMessage, ...]:
        return (ChatMessage("user", "and this"),)

    async with proxied(stream("ok")) as (backend, far):
        await run(backend, a_turn("this", steer=steer))
    assert [message["content"] for message in far.asked[0].json["messages"]] == ["this", "and this"]


async def test_calls_for_a_program_come_back_to_it() -> None:
    calls = [
        {"index": 0, "id": "c1", "function": {"name": "find", "arguments": '{"q":'}},
        {"index": 0, "function": {"arguments": '"x"}'}},
    ]
    pieces = [said(tool_calls=[call]) for call in calls]
    answer = Answer([*pieces, *stream(finish="tool_calls").pieces])
    request = Request("r", (ChatMessage("user", "hi"),), tools=(ToolSpec("find", "", {}),))
    last = ending(await served(answer, a_turn(request=request), proxy_tools=True))
    assert last == Final("", calls=(ToolCall("c1", "find", {"q": "x"}),))
    # Nobody here could run it for a person.
    assert "empty answer" in sentence(await served(answer))


async def test_an_answer_cut_at_the_length_limit_says_so_to_a_person() -> None:
    last = ending(await served(stream("half", finish="length")))
    assert isinstance(last, Final)
    assert last.text.startswith("half\n\n(The answer was cut")
    assert not last.complete
    request = Request("r", (ChatMessage("user", "hi"),))
    last = ending(await served(stream("half", finish="length"), a_turn(request=request)))
    assert last == Final("half", complete=False)


# ── stale ──


class Checks:
    """A turn that is no longer wanted from the nth look on."""

    def __init__(self, fine: int) -> None:
        self.left = fine

    async def __call__(self) -> None:
        if self.left == 0:
            raise LeaseLost("This turn was stopped or taken over.")
        self.left -= 1


async def test_a_stale_turn_asks_nobody_and_comes_to_nothing() -> None:
    async with proxied(stream("stale")) as (backend, far):
        result = await backend.answer(a_turn(check=Checks(0)))
        assert far.seen == []
    assert (result.final_response, result.messages, result.api_calls) == ("", [], 0)


@pytest.mark.parametrize("answer", [stream("stale"), Answer(status=500)])
async def test_a_turn_that_became_stale_meanwhile_comes_to_nothing(answer: Answer) -> None:
    async with proxied(answer) as (backend, _):
        result = await backend.answer(a_turn(check=Checks(1)))
        with pytest.raises(LeaseLost):
            await run(backend, a_turn(check=Checks(1)))
    assert (result.final_response, result.messages, result.api_calls) == ("", [], 0)
    assert result.session_id == "sess-123"


# ── the backend itself ──


async def test_who_answers_is_told_without_secrets() -> None:
    backend: Backend = backend_at("https://far.example:8642/p/coder/v1", key=KEY)
    assert backend.about() == "the agent at https://far.example:8642"
    assert backend.models is None
    backend.warm()
    assert KEY not in repr(backend)
    await backend.close()


@pytest.mark.parametrize(
    "url",
    ["", "far:8642", "ftp://far", "http://me:hunter2@far", "http://far?key=hunter2", "http://"],
)
def test_an_address_that_is_none_is_refused_at_once_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.proxy_url") as caught:
        ProxyBackend(a_turn().profile, Settings(), url=url, secret=lambda _: None)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "ключ", "a\x7fb"])
async def test_a_key_that_cannot_be_one_is_a_clear_sentence(key: str) -> None:
    async with proxied(stream("ok"), key=key) as (backend, far):
        last = ending(await run(backend))
        assert far.seen == []
    assert isinstance(last, Failed)
    assert last.kind == "auth"
    assert "GATEWAY_PROXY_KEY" in last.sentence
    assert key not in last.sentence


async def test_turns_run_side_by_side() -> None:
    def script(seen: Seen) -> Answer:
        return stream(seen.json["messages"][-1]["content"])

    async with proxied(script) as (backend, _):
        runs = [run(backend, a_turn(f"m{n}")) for n in range(20)]
        answers = [ending(events) for events in await asyncio.gather(*runs)]
    assert answers == [Final(f"m{n}") for n in range(20)]


async def test_nothing_is_all_text() -> None:
    assert all_of(await served(stream("")), TextDelta) == []


FAR_KINDS = {
    "a server without capabilities": Answer(status=404),
    "another agent": as_json({"object": "hermes.api_server.capabilities", "features": {}}),
    "an old Parley": as_json({"server": "parley", "features": ["chat.completions"]}),
}


@pytest.mark.parametrize("kind", FAR_KINDS)
@pytest.mark.parametrize("wanted", ["tools", "response_format"])
async def test_what_a_far_end_would_ignore_is_refused(kind: str, wanted: str) -> None:
    tools = (ToolSpec("find", "", {}),) if wanted == "tools" else ()
    wishes = Wishes(response_format={"type": "json_object"} if not tools else None)
    request = Request("r", (ChatMessage("user", "hi"),), tools=tools, wishes=wishes)

    def far(seen: Seen) -> Answer:
        return FAR_KINDS[kind] if seen.path == "/v1/capabilities" else stream("ignored")

    async with proxied(far) as (backend, server):
        last = ending(await run(backend, a_turn(request=request)))
        assert isinstance(last, Failed)
        assert last.kind == "unsupported"
        assert f"`{wanted}`" in last.sentence
        assert "/v1/chat/completions" not in {seen.path for seen in server.asked}
        plain = replace(request, tools=(), wishes=Wishes())
        assert ending(await run(backend, a_turn(request=plain))) == Final("ignored")
