"""Asking again: when, how long after, and what becomes of text that was already shown."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import pytest

from parley.agent.providers.base import ModelReply, Provider
from parley.agent.providers.retry import RetryingProvider
from parley.protocol import TextDelta, TextReset
from tests.agent.providers.builders import ask, collect, failure, final, openai
from tests.servers.scripted_model import Reply, ScriptedModel


class Pauses:
    """Stands for `asyncio.sleep` and notes how long it was asked to wait."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


class Replies:
    """A script that gives these replies one after the other, then the usual one."""

    def __init__(self, *replies: Reply) -> None:
        self._left = list(replies)

    def __call__(self, _: Mapping[str, Any]) -> Reply | None:
        return self._left.pop(0) if self._left else None


def retrying(inner: Provider, pauses: Pauses, *, attempts: int = 4) -> RetryingProvider:
    return RetryingProvider(inner, attempts=attempts, sleep=pauses, random=lambda: 1.0)


async def test_a_passing_fault_is_tried_again_with_growing_pauses() -> None:
    pauses = Pauses()
    script = Replies(Reply(status=500), Reply(status=503), Reply(status=429))
    async with ScriptedModel(script) as server:
        assert (await final(retrying(openai(server), pauses))).text == "echo: hi"
    assert pauses.taken == [0.5, 1.0, 2.0]


async def test_pauses_are_of_random_length_and_have_a_top() -> None:
    pauses = Pauses()
    draws = iter([0.5, 0.25, 1.0, 1.0, 1.0])
    async with ScriptedModel(lambda _: Reply(status=500)) as server:
        provider = RetryingProvider(
            openai(server),
            attempts=6,
            base_delay=1,
            max_delay=5,
            sleep=pauses,
            random=lambda: next(draws),
        )
        await failure(provider)
    assert pauses.taken == [0.5, 0.5, 4.0, 5.0, 5.0]


async def test_after_the_last_try_the_fault_is_told() -> None:
    pauses = Pauses()
    async with ScriptedModel(lambda _: Reply(status=500)) as server:
        error = await failure(retrying(openai(server), pauses, attempts=3))
        assert (error.kind, server.total, len(pauses.taken)) == ("overloaded", 3, 2)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 413])
async def test_a_fault_that_stays_is_told_at_once(code: int) -> None:
    pauses = Pauses()
    async with ScriptedModel(lambda _: Reply(status=code)) as server:
        await failure(retrying(openai(server), pauses))
        assert (server.total, pauses.taken) == (1, [])


async def test_the_pause_that_the_server_asks_for_is_kept() -> None:
    pauses = Pauses()
    async with ScriptedModel(Replies(Reply(status=429, headers={"Retry-After": "12"}))) as server:
        await final(retrying(openai(server), pauses))
    assert pauses.taken == [12.5]


async def test_a_pause_that_is_too_long_is_told_instead() -> None:
    pauses = Pauses()
    reply = Reply(status=429, headers={"Retry-After": "7200"})
    async with ScriptedModel(lambda _: reply) as server:
        error = await failure(retrying(openai(server), pauses))
        assert server.total == 1
    assert "2 hours" in str(error)
    assert (error.kind, error.retry_after, pauses.taken) == ("rate_limited", 7200, [])


async def test_text_of_a_broken_try_is_withdrawn_before_the_next() -> None:
    broken = Reply("hello", chunks=5, cut_after=2)
    async with ScriptedModel(Replies(broken, broken)) as server:
        events = await collect(retrying(openai(server), Pauses()))
    half = [TextDelta("h"), TextDelta("e"), TextReset()]
    assert events[:-1] == [*half, *half, TextDelta("echo: hi")]
    assert isinstance(events[-1], ModelReply)


async def test_nothing_is_withdrawn_when_nothing_was_said() -> None:
    async with ScriptedModel(Replies(Reply(status=500))) as server:
        events = await collect(retrying(openai(server), Pauses()))
    assert TextReset() not in events


async def test_closing_early_stops_the_server() -> None:
    async with ScriptedModel(lambda _: Reply("a b", chunks=3, chunk_delay=30)) as server:
        provider = retrying(openai(server), Pauses())
        async with aclosing(provider.stream(ask())) as events:
            await anext(events)
        await server.until(lambda s: s.aborted == 1)
        await provider.close()


async def test_a_pause_can_be_cancelled() -> None:
    async with ScriptedModel(lambda _: Reply(status=429, headers={"Retry-After": "50"})) as server:
        provider = RetryingProvider(openai(server))
        task = asyncio.create_task(collect(provider))
        await server.until(lambda s: s.total == 1 and s.open_streams == 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_check_is_made_once() -> None:
    async with ScriptedModel(lambda _: Reply(status=500)) as server:
        provider = retrying(openai(server), Pauses())
        with pytest.raises(Exception, match="cannot answer"):
            await provider.check()
        await provider.close()
        assert server.total == 1
