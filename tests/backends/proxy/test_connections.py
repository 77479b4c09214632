"""What is sent again and what never is, connections that are kept, and those that are closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from parley.backends.proxy.result import ProxyResult
from parley.protocol import Failed, Final, TextDelta
from tests.backends.proxy.builders import a_turn, backend_at, ending, proxied, run
from tests.servers.ports import free_port
from tests.servers.raw_sse import Answer, RawServer, Seen, said, stream
from tests.waiting import until


def in_turn(*answers: Answer | None) -> Callable[[Seen], Answer | None]:
    """One after the other; the last one for good."""
    left = list(answers)

    def script(_: Seen) -> Answer | None:
        return left.pop(0) if len(left) > 1 else left[0]

    return script


# ── again ──


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0"}, {"Retry-After": "0.05"}])
async def test_who_is_busy_is_asked_again(status: int, headers: dict[str, str]) -> None:
    busy = Answer(status=status, headers=headers)
    async with proxied(in_turn(busy, busy, stream("ok"))) as (backend, far):
        assert ending(await run(backend)) == Final("ok")
    assert len(far.asked) == 3


async def test_six_times_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.backends.proxy.client._FIRST_PAUSE", 0.01)
    async with proxied(Answer([b"full"], 503)) as (backend, far):
        last = ending(await run(backend))
    assert isinstance(last, Failed)
    assert last.kind == "overloaded"
    assert len(far.asked) == 6


async def test_who_asks_for_a_long_pause_is_not_waited_for() -> None:
    busy = Answer(status=429, headers={"Retry-After": "60"})
    began = time.monotonic()
    async with proxied(busy) as (backend, far):
        last = ending(await run(backend))
    assert isinstance(last, Failed)
    assert (last.kind, last.retry_after) == ("rate_limited", 60)
    assert "try again in 60 s" in last.sentence
    assert len(far.asked) == 1
    assert time.monotonic() - began < 50


@pytest.mark.parametrize("status", [429, 503])
async def test_who_asks_not_to_be_asked_again_is_not(status: int) -> None:
    busy = Answer(status=status, headers={"x-should-retry": "false"})
    async with proxied(busy) as (backend, far):
        assert isinstance(ending(await run(backend)), Failed)
    assert len(far.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 500, 502, 504])
async def test_any_other_refusal_is_final(status: int) -> None:
    async with proxied(Answer(status=status)) as (backend, far):
        assert isinstance(ending(await run(backend)), Failed)
    assert len(far.asked) == 1


async def test_a_far_end_that_starts_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.9)  # long pauses between the tries
    port = free_port()
    backend = backend_at(f"http://127.0.0.1:{port}")
    running = asyncio.create_task(run(backend))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"".join(piece for piece in stream("ok").pieces if isinstance(piece, bytes))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    began = time.monotonic()
    await until(lambda: time.monotonic() - began > 0.1)  # by now it has found nobody there
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    assert ending(await running) == Final("ok")
    await backend.close()
    server.close()
    await server.wait_closed()


# ── never again ──


@pytest.mark.parametrize(
    "answer",
    [
        Answer(),
        Answer([said(content="a")], ending="cut"),
        Answer([b": x\n\n"], ending="cut"),
        Answer([b"<html>"]),
        stream(),
    ],
)
async def test_what_was_accepted_is_never_asked_again(answer: Answer) -> None:
    async with proxied(answer) as (backend, far):
        await run(backend)
    assert len(far.asked) == 1


async def test_a_new_connection_that_is_dropped_without_a_word_is_not_tried_again() -> None:
    async with proxied(in_turn(None, stream("twice"))) as (backend, far):
        assert isinstance(ending(await run(backend)), Failed)
    assert len(far.asked) == 1


async def test_a_kept_connection_closed_while_idle_is_made_anew() -> None:
    async with proxied(in_turn(stream("one"), None, stream("two"))) as (backend, far):
        assert ending(await run(backend)) == Final("one")
        assert ending(await run(backend)) == Final("two")
        assert far.accepted == 2


async def test_a_kept_connection_that_ends_after_a_while_of_work_is_not_tried_again() -> None:
    gate = asyncio.Event()
    answers = [stream("one"), Answer(raw=b"")]

    class Slow(RawServer):
        async def _write(self, answer: Answer, writer: asyncio.StreamWriter) -> None:
            if answer.raw is not None:
                await gate.wait()
            await super()._write(answer, writer)

    async with Slow(lambda _: answers.pop(0)) as far:
        backend = backend_at(far.url)
        assert ending(await run(backend)) == Final("one")
        running = asyncio.create_task(run(backend))
        await until(lambda: len(far.asked) == 2)
        asked_at = time.monotonic()
        await until(lambda: time.monotonic() - asked_at > 1.1)
        gate.set()
        last = ending(await running)
        await backend.close()
        assert isinstance(last, Failed)
        assert last.sentence.startswith("Proxy connection error")
        assert len(far.asked) == 2


# ── kept ──


async def test_one_connection_serves_turn_after_turn() -> None:
    async with proxied(stream("ok")) as (backend, far):
        for _ in range(5):
            assert ending(await run(backend)) == Final("ok")
        assert far.accepted == 1


async def test_a_refusal_does_not_cost_the_connection() -> None:
    async with proxied(in_turn(Answer([b"no"], 400), stream("ok"))) as (backend, far):
        await run(backend)
        assert ending(await run(backend)) == Final("ok")
        assert far.accepted == 1


async def test_last_bytes_that_come_a_little_late_do_not_cost_the_connection() -> None:
    def script(_: Seen) -> Answer:
        gate = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, gate.set)
        return Answer([*stream("ok").pieces, gate])

    async with proxied(script) as (backend, far):
        for _ in range(3):
            await run(backend)
        assert far.accepted == 1


# ── stopped ──


async def test_closing_a_turn_stops_the_far_end_at_once() -> None:
    async with proxied(Answer([said(content="a")], ending="hold")) as (backend, far):
        result = ProxyResult.of(a_turn())
        events = backend.run_into(a_turn(), result)
        assert await anext(events) == TextDelta("a")
        assert far.left == 0
        await events.aclose()
        await until(lambda: far.left == 1)
        assert (result.final_response, result.messages, result.api_calls) == ("", [], 0)


@pytest.mark.parametrize("pieces", [[], [said(content="a")]])
async def test_cancelling_a_turn_stops_the_far_end_at_once(pieces: list[bytes]) -> None:
    async with proxied(Answer(pieces, ending="hold")) as (backend, far):
        running = asyncio.create_task(run(backend))
        await until(lambda: far.answering == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: far.left == 1)


async def test_cancelling_before_there_are_headers_stops_the_far_end_too() -> None:
    class Silent(RawServer):
        async def _write(self, answer: Answer, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

    async with Silent(lambda _: stream("never")) as far:
        backend = backend_at(far.url)
        running = asyncio.create_task(run(backend))
        await until(lambda: far.answering == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: far.left == 1)
        await backend.close()


async def test_a_turn_can_be_stopped_while_it_waits_to_ask_again() -> None:
    busy = Answer(status=503, headers={"Retry-After": "9"})
    async with proxied(busy) as (backend, far):
        running = asyncio.create_task(run(backend))
        await until(lambda: len(far.asked) == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
