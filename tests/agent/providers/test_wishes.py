"""What a program wishes for: how each format says it, and what becomes of a wish that fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from parley.agent.providers.base import ModelRequest
from parley.agent.providers.retry import RetryingProvider
from parley.protocol import Wishes
from tests.agent.providers.builders import NOW, ask, failure, final, openai, text_of
from tests.agent.providers.test_anthropic import claude, end, events, start, text
from tests.servers.scripted_model import Reply, ScriptedModel

SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "city", "schema": {"type": "object", "properties": {}}},
}
ALL = Wishes(
    temperature=0.25,
    top_p=0.5,
    seed=7,
    stop=("END", "\n\n"),
    tool_choice="required",
    parallel_tool_calls=False,
    response_format=SCHEMA,
)


def wishing(*, tools: bool = True, **wishes: Any) -> ModelRequest:
    return replace(ask(tools=(NOW,) if tools else ()), wishes=Wishes(**wishes))


async def sent_to_openai(request: ModelRequest, *, temperature: float | None = None) -> Any:
    async with ScriptedModel() as server:
        await final(openai(server, temperature=temperature), request)
    return server.requests[0].json


async def sent_to_anthropic(request: ModelRequest) -> Any:
    async with ScriptedModel(lambda _: events(start(), *text("a"), *end())) as server:
        await final(claude(server), request)
    return server.requests[0].json


def refusing(about: str, words: str, *, status: int = 400) -> Any:
    def script(asked: Mapping[str, Any]) -> Reply | None:
        if about in asked:
            return Reply(status=status, body=json.dumps({"error": {"message": words}}))
        return None

    return script


# ── the OpenAI format ─────────────────────────────────────────────────────────────────────────


async def test_all_wishes_reach_an_openai_server_as_they_are() -> None:
    body = await sent_to_openai(replace(ask(tools=(NOW,)), wishes=ALL), temperature=0.9)
    assert {name: body.get(name) for name in ALL.to_dict()} == {
        "temperature": 0.25,
        "top_p": 0.5,
        "seed": 7,
        "stop": ["END", "\n\n"],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": SCHEMA,
    }


async def test_nothing_is_sent_that_nobody_wished_for() -> None:
    body = await sent_to_openai(ask(tools=(NOW,)))
    assert set(body) == {"model", "messages", "tools", "stream", "stream_options"}


async def test_a_temperature_of_zero_is_a_wish_too() -> None:
    assert (await sent_to_openai(wishing(temperature=0.0), temperature=0.9))["temperature"] == 0.0


async def test_the_one_tool_is_named_in_the_openai_format() -> None:
    choice = (await sent_to_openai(wishing(tool="now")))["tool_choice"]
    assert choice == {"type": "function", "function": {"name": "now"}}


async def test_without_tools_nothing_is_said_about_them() -> None:
    body = await sent_to_openai(wishing(tools=False, tool_choice="none", parallel_tool_calls=True))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"seed": 7}, "Unrecognized request argument supplied: seed"),
        ({"top_p": 0.5}, "Unsupported parameter: 'top_p' is not supported with this model."),
        ({"temperature": 0.5}, "'temperature' does not support 0.5 with this model."),
        ({"parallel_tool_calls": False}, "Extra inputs are not permitted: parallel_tool_calls"),
    ],
)
async def test_a_mere_option_that_is_refused_is_left_out(wish: dict[str, Any], words: str) -> None:
    [name] = wish
    async with ScriptedModel(refusing(name, words)) as server:
        provider = openai(server)
        for _ in range(2):
            got = [event async for event in provider.stream(wishing(**wish, stop=("END",)))]
            assert text_of(got) == ["echo: hi"]
        await provider.close()
    assert [name in request.json for request in server.requests] == [True, False, False]
    assert all(request.json["stop"] == ["END"] for request in server.requests)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ("seed", "seed is not supported"),
        ("max_tokens", "'max_tokens' is not supported, use 'max_completion_tokens' instead."),
    ],
)
async def test_those_who_ask_at_the_same_time_all_do_without(about: str, words: str) -> None:
    async with ScriptedModel(refusing(about, words), delay=0.05) as server:
        provider = openai(server, max_output_tokens=9)

        async def one() -> list[str]:
            return text_of([event async for event in provider.stream(wishing(seed=7))])

        assert await asyncio.gather(*(one() for _ in range(5))) == [["echo: hi"]] * 5
        await provider.close()
    assert ("max_completion_tokens" in server.requests[-1].json) == (about == "max_tokens")


async def test_what_a_refusal_only_mentions_is_not_left_out() -> None:
    words = "stop is not supported; only temperature and seed are"
    async with ScriptedModel(refusing("stop", words)) as server:
        provider = openai(server, temperature=0.5)
        assert (await failure(provider, wishing(stop=("END",)))).kind == "unsupported"
        assert provider._left_out == frozenset()
    assert server.total == 1


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    ("wish", "name", "words"),
    [
        ({"stop": ("x",)}, "stop", "Unsupported parameter: 'stop' is not supported here."),
        ({"tool_choice": "required"}, "tool_choice", "tool_choice required is not supported"),
        ({"tool": "now"}, "tool_choice", "tool_choice: unknown variant"),
        ({"response_format": SCHEMA}, "response_format", "This response_format is unavailable now"),
        ({"response_format": SCHEMA}, "response_format", "json_schema is not supported, sorry"),
    ],
)
async def test_a_wish_that_changes_the_reply_is_never_dropped(
    wish: dict[str, Any], name: str, words: str, status: int
) -> None:
    async with ScriptedModel(refusing(name, words, status=status)) as server:
        error = await failure(openai(server), wishing(**wish))
    assert (error.kind, error.status, server.total) == ("unsupported", status, 1)
    assert str(error).startswith(f"here's model scripted does not offer `{name}`")
    assert words.rstrip(".") in str(error)


async def test_a_schema_that_is_wrong_in_itself_is_a_refusal() -> None:
    words = "Invalid schema for response_format 'city': 'type' is required"
    async with ScriptedModel(refusing("response_format", words)) as server:
        error = await failure(openai(server), wishing(response_format=SCHEMA))
    assert error.kind == "refused"
    assert words in str(error)


async def test_a_word_of_a_wish_that_nobody_made_means_nothing() -> None:
    async with ScriptedModel(refusing("model", "stop is not supported")) as server:
        assert (await failure(openai(server))).kind == "refused"


async def test_what_is_unsupported_is_asked_once() -> None:
    async with ScriptedModel(refusing("stop", "stop is not supported")) as server:
        error = await failure(RetryingProvider(openai(server)), wishing(stop=("x",)))
    assert (error.kind, server.total) == ("unsupported", 1)


# ── Anthropic's ───────────────────────────────────────────────────────────────────────────────


async def test_the_wishes_that_the_messages_format_knows_reach_it() -> None:
    body = await sent_to_anthropic(
        replace(ask(tools=(NOW,)), wishes=replace(ALL, response_format=None))
    )
    assert body["temperature"] == 0.25
    assert body["top_p"] == 0.5
    assert body["stop_sequences"] == ["END", "\n\n"]
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert "seed" not in body


@pytest.mark.parametrize(
    ("wish", "choice"),
    [
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"tool": "now"}, {"type": "tool", "name": "now"}),
        (
            {"parallel_tool_calls": False},
            {"type": "auto", "disable_parallel_tool_use": True},
        ),
        ({"parallel_tool_calls": True}, None),
        ({}, None),
    ],
)
async def test_the_choice_of_a_tool_in_anthropics_words(
    wish: dict[str, Any], choice: dict[str, Any] | None
) -> None:
    assert (await sent_to_anthropic(wishing(**wish))).get("tool_choice") == choice
    assert "tool_choice" not in await sent_to_anthropic(wishing(tools=False, **wish))


async def test_a_temperature_goes_no_higher_than_the_messages_format_lets_it() -> None:
    assert (await sent_to_anthropic(wishing(temperature=1.7)))["temperature"] == 1.0


@pytest.mark.parametrize(
    ("wish", "sent"),
    [({}, {"temperature": 0.5}), ({"top_p": 0.1}, {"top_p": 0.1}), ({"temperature": 0.0},) * 2],
)
async def test_the_setting_gives_way_to_what_a_program_wants(
    wish: dict[str, Any], sent: dict[str, Any]
) -> None:
    async with ScriptedModel(lambda _: events(start(), *text("a"), *end())) as server:
        await final(claude(server, temperature=0.5), wishing(**wish))
    body = server.requests[0].json
    assert {name: body[name] for name in ("temperature", "top_p") if name in body} == sent


@pytest.mark.parametrize("wanted", [SCHEMA, {"type": "json_object"}])
async def test_a_form_of_reply_is_not_offered_by_anthropic(wanted: dict[str, Any]) -> None:
    async with ScriptedModel() as server:
        error = await failure(claude(server), wishing(response_format=wanted))
        assert (error.kind, server.total) == ("unsupported", 0)
    assert "claude's model c-1 does not offer `response_format`" in str(error)


async def test_plain_text_is_a_form_that_everybody_offers() -> None:
    body = await sent_to_anthropic(wishing(response_format={"type": "text"}))
    assert "response_format" not in body


# ── both ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", [openai, claude])
async def test_a_tool_that_the_request_does_not_hold_is_refused(make: Any) -> None:
    async with ScriptedModel() as server:
        error = await failure(make(server), wishing(tool="fly"))
        assert (error.kind, server.total) == ("refused", 0)
    assert "fly" in str(error)
