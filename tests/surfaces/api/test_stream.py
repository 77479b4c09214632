"""Events to a client that may be slow, gone, or silent; and where they wait meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
import tracemalloc

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from parley.protocol import TextDelta, TextReset, TurnEvent
from parley.surfaces.api.errors import ClientGone
from parley.surfaces.api.stream import EventStream, Mailbox
from tests.surfaces.api.raw import Handler, Raw, a_site, both_loops
from tests.waiting import until

event_loop_policy = both_loops
pytestmark = pytest.mark.filterwarnings('ignore:Overriding the "event_loop_policy"')

ASK = b"GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"
MEGABYTE = 1024 * 1024


def dechunked(wire: bytes) -> bytes:
    """The body of a response in chunks, which must be whole."""
    _, _, rest = wire.partition(b"\r\n\r\n")
    body = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            assert rest == b"\r\n"
            return body
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]


async def streamed(handler: Handler) -> bytes:
    async with a_site(("GET", "/", handler)) as site, Raw(site) as raw:
        await raw.send(ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        return await raw.rest()


# ── what is written ──


async def test_events_have_a_name_an_id_and_as_many_lines_as_they_need() -> None:
    async def say(request: web.Request) -> web.StreamResponse:
        async with EventStream(request, headers={"X-Parley-Session-Id": "s1"}) as out:
            await out.send("plain")
            await out.send(b"bytes \xc3\xa9", event="parley.step", id=7)
            await out.send("one\ntwo\r\nthree\rfour")
            await out.comment("well\nnow")
        return out.response

    wire = await streamed(say)
    head = wire.partition(b"\r\n\r\n")[0]
    assert b"HTTP/1.1 200 OK" in head
    assert b"Content-Type: text/event-stream; charset=utf-8" in head
    assert b"Cache-Control: no-store" in head
    assert b"X-Accel-Buffering: no" in head
    assert b"X-Parley-Session-Id: s1" in head
    assert b"Content-Encoding" not in head
    assert dechunked(wire).decode() == (
        "data: plain\n\n"
        "event: parley.step\nid: 7\ndata: bytes é\n\n"
        "data: one\ndata: two\ndata: three\ndata: four\n\n"
        ": well now\n\n"
    )


@pytest.mark.parametrize("field", ["event", "id"])
async def test_a_name_of_two_lines_is_not_sent(field: str) -> None:
    refused = []

    async def say(request: web.Request) -> web.StreamResponse:
        async with EventStream(request) as out:
            try:
                if field == "event":
                    await out.send("x", event="a\ndata: forged")
                else:
                    await out.send("x", id="a\rb")
            except ValueError as error:
                refused.append(error)
        return out.response

    assert dechunked(await streamed(say)) == b""
    assert len(refused) == 1


async def test_an_http_1_0_client_gets_the_stream_without_chunks() -> None:
    async def say(request: web.Request) -> web.StreamResponse:
        async with EventStream(request) as out:
            await out.send("hello")
        return out.response

    async with a_site(("GET", "/", say)) as site, Raw(site) as raw:
        await raw.send(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
        assert (await raw.rest()).endswith(b"\r\n\r\ndata: hello\n\n")


async def test_headers_and_the_first_event_leave_at_once() -> None:
    go_on = asyncio.Event()

    async def say(request: web.Request) -> web.StreamResponse:
        async with EventStream(request) as out:
            await go_on.wait()
            go_on.clear()
            await out.send("first")
            await go_on.wait()
            await out.send("second")
        return out.response

    async with a_site(("GET", "/", say)) as site, Raw(site) as raw, asyncio.timeout(60):
        await raw.send(ASK)
        await raw.reader.readuntil(b"\r\n\r\n")
        go_on.set()
        await raw.reader.readuntil(b"data: first\n\n")
        go_on.set()
        await raw.reader.readuntil(b"data: second\n\n")


async def test_a_silent_stream_is_kept_alive_and_a_lively_one_needs_it_not() -> None:
    over = asyncio.Event()

    async def say(request: web.Request) -> web.StreamResponse:
        async with EventStream(request, keepalive_seconds=0.25) as out:
            for _ in range(20):
                await out.send("tick")
                await asyncio.sleep(0.03)
            await over.wait()
        return out.response

    async with a_site(("GET", "/", say)) as site, Raw(site) as raw, asyncio.timeout(60):
        await raw.send(ASK)
        lively = await raw.reader.readuntil(b": keep-alive\n\n")
        assert lively.count(b"data: tick") == 20
        await raw.reader.readuntil(b": keep-alive\n\n")
        over.set()
        assert (await raw.reader.readuntil(b"0\r\n\r\n")).count(b"keep-alive") == 0


# ── clients that do not read ──


async def test_a_client_that_left_is_noticed_by_who_sends() -> None:
    seen: list[str] = []
    left = asyncio.Event()

    async def say(request: web.Request) -> web.StreamResponse:
        async def work() -> None:
            # In a task of its own, which is not cancelled with the connection.
            try:
                async with EventStream(request) as out:
                    await out.send("first")
                    await left.wait()
                    await out.send("second")
            except ClientGone as error:
                seen.append(str(error))

        task = asyncio.create_task(work())
        try:
            await asyncio.shield(task)
        finally:
            await task
        raise AssertionError

    async with a_site(("GET", "/", say)) as site:
        async with Raw(site) as raw:
            await raw.send(ASK)
            await raw.reader.readuntil(b"data: first\n\n")
        await until(lambda: site.connections == 0)
        left.set()
        await until(lambda: seen)
    assert seen == ["The client has closed its connection."]


async def test_a_client_that_stops_reading_costs_little_and_is_let_go() -> None:
    delta = "x" * 1000
    box: Mailbox[TurnEvent] = Mailbox()
    outcome: list[str] = []

    async def say(request: web.Request) -> web.StreamResponse:
        began = time.monotonic()
        try:
            async with EventStream(request, stalled_seconds=0.5) as out:
                async for event in box:
                    assert isinstance(event, TextDelta)
                    await out.send(json.dumps({"content": event.text}))
        except ClientGone as error:
            outcome.append(str(error))
            assert 0.4 < time.monotonic() - began < 30
            raise
        return out.response

    async with a_site(("GET", "/", say)) as site, Raw(site, receive_buffer=4096) as raw:
        raw.reader._transport.pause_reading()  # type: ignore[attr-defined]
        gc.collect()
        tracemalloc.start()
        try:
            await raw.send(ASK)
            await until(lambda: site.connections == 1)
            for number in range(50 * MEGABYTE // len(delta)):
                # Each a string of its own, as a model's are.
                box.put(TextDelta(delta[:-1] + chr(97 + number % 26)))
                if number % 1000 == 0:
                    await asyncio.sleep(0)
            box.close()
            held, peak = tracemalloc.get_traced_memory()
            assert held < 55 * MEGABYTE
            assert peak < 55 * MEGABYTE
            await until(lambda: outcome)
            assert tracemalloc.get_traced_memory()[1] < 56 * MEGABYTE
        finally:
            tracemalloc.stop()
        assert outcome == ["The client has stopped reading."]
        await until(lambda: site.connections == 0)


@pytest.mark.parametrize("held", [False, True])
async def test_a_client_that_reads_slowly_gets_everything(held: bool) -> None:
    events = 60
    text = "y" * 40_000

    async def say(request: web.Request) -> web.StreamResponse:
        async with EventStream(request, stalled_seconds=0.4) as out:
            for _ in range(events):
                if held:
                    out.hold(text)
                else:
                    await out.send(text)
        return out.response

    async with a_site(("GET", "/", say)) as site, Raw(site, receive_buffer=4096) as raw:
        await raw.send(ASK)
        got = 0
        tail = b""
        began = time.monotonic()
        while not tail.endswith(b"0\r\n\r\n"):
            piece = await raw.reader.read(20_000)
            assert piece
            got, tail = got + len(piece), (tail + piece)[-16:]
            await asyncio.sleep(0.01)
        assert got > events * len(text)
        assert time.monotonic() - began > 0.8


async def test_one_large_event_is_waited_for_while_the_client_reads_at_all() -> None:
    async def say(request: web.Request) -> web.StreamResponse:
        async with EventStream(request, stalled_seconds=0.3) as out:
            await out.send("z" * 3_000_000)
        return out.response

    async with a_site(("GET", "/", say)) as site, Raw(site, receive_buffer=4096) as raw:
        await raw.send(ASK)
        tail, began = b"", time.monotonic()
        while not tail.endswith(b"0\r\n\r\n"):
            piece = await raw.reader.read(30_000)
            assert piece
            tail = (tail + piece)[-16:]
            await asyncio.sleep(0.01)
        assert time.monotonic() - began > 0.6


async def test_an_error_after_the_first_event_cuts_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def say(request: web.Request) -> web.StreamResponse:
        async with EventStream(request) as out:
            await out.send("first")
            raise LookupError("lost")

    wire = await streamed(say)
    assert b"0\r\n\r\n" not in wire.partition(b"\r\n\r\n")[2]
    assert wire.count(b"HTTP/1.1") <= 1
    assert "LookupError" in caplog.text


async def test_a_wait_for_a_slow_client_may_be_cut_short_and_the_stream_goes_on() -> None:
    cut, go_on = asyncio.Event(), asyncio.Event()

    async def say(request: web.Request) -> web.StreamResponse:
        async with EventStream(request) as out:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await out.send("z" * 3_000_000)
            cut.set()
            await go_on.wait()
            await out.send("after")
        return out.response

    async with a_site(("GET", "/", say)) as site, Raw(site, receive_buffer=4096) as raw:
        raw.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await raw.send(ASK)
        await asyncio.wait_for(cut.wait(), 60)
        raw.reader._transport.resume_reading()  # type: ignore[attr-defined]
        go_on.set()
        tail = b""
        async with asyncio.timeout(60):
            while not tail.endswith(b"0\r\n\r\n"):
                piece = await raw.reader.read(2**16)
                assert piece
                tail = (tail + piece)[-64:]
        assert b"data: after\n\n" in tail


# ── the mailbox ──

EVENTS = st.lists(st.one_of(st.text(max_size=9).map(TextDelta), st.just(TextReset())), max_size=60)


def texts(events: list[TurnEvent]) -> list[str]:
    """What is said between all that is not text."""
    said = [""]
    for event in events:
        if isinstance(event, TextDelta):
            said[-1] += event.text
        else:
            said.append("")
    return said


@given(EVENTS, st.integers(1, 5), st.integers(1, 20))
def test_what_comes_out_says_what_went_in(
    events: list[TurnEvent], runs_after: int, run_length: int
) -> None:
    async def through() -> list[TurnEvent]:
        box: Mailbox[TurnEvent] = Mailbox(runs_after=runs_after, run_length=run_length)
        for event in events:
            box.put(event)
        box.close()
        return [event async for event in box]

    out = asyncio.run(through())
    assert texts(out) == texts(events)
    assert len(out) <= len(events)


async def test_a_quick_reader_gets_every_piece_as_it_came() -> None:
    box: Mailbox[TurnEvent] = Mailbox(runs_after=2)
    reading = asyncio.create_task(box.get())
    for word in ("a", "b", "c"):
        box.put(TextDelta(word))
        assert await reading == TextDelta(word)
        reading = asyncio.create_task(box.get())
        await asyncio.sleep(0)
    box.close()
    assert await reading is None


async def test_text_runs_together_only_past_its_length() -> None:
    box: Mailbox[TurnEvent] = Mailbox(runs_after=2)
    for word in ("a", "b", "c", "d"):
        box.put(TextDelta(word))
    box.put(TextReset())
    box.put(TextDelta("e"))
    box.close()
    box.put(TextDelta("late"))
    assert [event async for event in box] == [
        TextDelta("a"),
        TextDelta("b"),
        TextDelta("cd"),
        TextReset(),
        TextDelta("e"),
    ]


async def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    box: Mailbox[TurnEvent] = Mailbox()
    reading = asyncio.create_task(box.get())
    await asyncio.sleep(0)
    box.put(TextDelta("a"))
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    assert await box.get() == TextDelta("a")


async def test_many_small_pieces_cost_little_more_than_their_text() -> None:
    box: Mailbox[TurnEvent] = Mailbox()
    tracemalloc.start()
    try:
        for number in range(100_000):
            box.put(TextDelta(f"{number:05} "))
        assert tracemalloc.get_traced_memory()[0] < 2 * MEGABYTE
    finally:
        tracemalloc.stop()
    assert len(box) < 400
