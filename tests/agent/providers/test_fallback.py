"""Who answers when the first provider cannot."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

import pytest

from parley.agent.providers.base import ModelReply, Provider
from parley.agent.providers.fallback import FallbackProvider
from parley.agent.providers.openai import OpenAIProvider
from parley.protocol import TextDelta, TextReset, Wishes
from tests.agent.providers.builders import (
    NOW,
    ask,
    collect,
    failure,
    final,
    openai,
)
from tests.servers.ports import free_port
from tests.servers.scripted_model import Reply, ScriptedModel


def nobody(label: str = "gone") -> Provider:
    return OpenAIProvider(
        label,
        base_url=f"http://127.0.0.1:{free_port()}/v1",
        api_key=None,
        model="m",
        context_window=8192,
    )


def without_tools(server: ScriptedModel) -> Provider:
    return OpenAIProvider(
        "plain",
        base_url=server.base_url,
        api_key=None,
        model="m",
        context_window=8192,
        offers_tools=False,
    )


@pytest.mark.parametrize("code", [401, 402, 403, 404, 408, 429, 500, 529])
async def test_the_next_one_answers_and_its_usage_says_so(code: int) -> None:
    async with ScriptedModel(lambda _: Reply(status=code)) as bad, ScriptedModel() as good:
        provider = FallbackProvider([openai(bad, label="one"), openai(good, label="two")])
        reply = await final(provider)
    assert (reply.text, reply.usage.provider) == ("echo: hi", "two")


async def test_the_first_one_answers_when_it_can() -> None:
    async with ScriptedModel() as one, ScriptedModel() as two:
        reply = await final(FallbackProvider([openai(one, label="one"), openai(two, label="two")]))
        assert (reply.usage.provider, two.total) == ("one", 0)


async def test_an_unreachable_one_is_passed_over() -> None:
    async with ScriptedModel() as good:
        reply = await final(FallbackProvider([nobody(), nobody(), openai(good, label="two")]))
    assert reply.usage.provider == "two"


async def test_text_of_the_one_that_broke_is_withdrawn() -> None:
    half = Reply("hello", chunks=5, cut_after=1)
    async with ScriptedModel(lambda _: half) as bad, ScriptedModel() as good:
        events = await collect(FallbackProvider([openai(bad), openai(good)]))
    assert events[:-1] == [TextDelta("h"), TextReset(), TextDelta("echo: hi")]
    assert isinstance(events[-1], ModelReply)


async def test_a_refused_request_is_not_passed_on() -> None:
    async with ScriptedModel(lambda _: Reply(status=400)) as bad, ScriptedModel() as good:
        error = await failure(FallbackProvider([openai(bad, label="one"), openai(good)]))
        assert (error.kind, good.total) == ("refused", 0)
    assert "one" in str(error)


async def test_what_the_first_does_not_support_is_told_and_not_hidden() -> None:
    refusal = Reply(status=400, body='{"error": {"message": "stop is not supported"}}')
    request = replace(ask(), wishes=Wishes(stop=("x",)))
    async with ScriptedModel(lambda _: refusal) as bad, ScriptedModel() as good:
        error = await failure(FallbackProvider([openai(bad, label="one"), openai(good)]), request)
        assert (error.kind, good.total) == ("unsupported", 0)
    assert str(error).startswith("one's model scripted does not offer `stop`")


@pytest.mark.parametrize("wishes", [Wishes(tool="now"), Wishes(tool_choice="required")])
async def test_a_call_that_must_be_is_not_asked_of_one_without_tools(wishes: Wishes) -> None:
    async with ScriptedModel() as server:
        plain = without_tools(server)
        request = replace(ask(tools=(NOW,)), wishes=wishes)
        error = await failure(FallbackProvider([plain, openai(server)]), request)
    assert (error.kind, server.total) == ("unsupported", 0)
    assert "plain" in str(error)
    assert "`tool_choice`" in str(error)


@pytest.mark.parametrize(("window", "helps"), [(4096, False), (8192, False), (32_000, True)])
async def test_what_is_too_long_goes_only_to_a_larger_window(window: int, helps: bool) -> None:
    async with ScriptedModel(lambda _: Reply(status=413)) as small, ScriptedModel() as other:
        second = openai(other, context_window=window)
        provider = FallbackProvider([openai(small, context_window=8192), second])
        if helps:
            assert (await final(provider)).text == "echo: hi"
        else:
            assert (await failure(provider)).kind == "too_long"
        assert other.total == int(helps)


async def test_when_all_fail_one_sentence_names_each() -> None:
    wait = Reply(status=429, headers={"Retry-After": "9"})
    async with ScriptedModel(lambda _: wait) as busy:
        provider = FallbackProvider([nobody("one"), openai(busy, label="two"), nobody("three")])
        error = await failure(provider)
    for label in ("one", "two", "three"):
        assert f"({label})" in str(error)
    assert "\n" not in str(error)
    assert (error.kind, error.retry_after) == ("unreachable", 9)


async def test_one_that_takes_no_tools_is_offered_none() -> None:
    async with ScriptedModel() as server:
        await final(FallbackProvider([nobody(), without_tools(server)]), ask(tools=(NOW,)))
    assert "tools" not in server.requests[0].json


async def test_it_speaks_of_itself_as_the_first() -> None:
    async with ScriptedModel() as server:
        first = openai(server, label="one", context_window=5000)
        provider = FallbackProvider([first, openai(server, label="two")])
        await provider.check()
        await provider.close()
        assert (provider.label, provider.model) == ("one", "scripted")
        assert (provider.context_window, provider.offers_tools) == (5000, True)
        assert server.total == 1


async def test_closing_early_stops_the_server() -> None:
    async with ScriptedModel(lambda _: Reply("a b", chunks=3, chunk_delay=30)) as server:
        provider = FallbackProvider([openai(server), nobody()])
        async with aclosing(provider.stream(ask())) as events:
            await anext(events)
        await server.until(lambda s: s.aborted == 1)
        await provider.close()
