"""A connection may cost only so much: time for its headers, room, a place among the others."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time

import pytest
from aiohttp import web

from parley.surfaces.api.connection_limits import mark_authenticated
from parley.surfaces.api.site import SiteLimits, open_site
from parley.surfaces.api.stream import EventStream
from tests.surfaces.api.raw import Raw, a_site, both_loops
from tests.waiting import until

event_loop_policy = both_loops
pytestmark = pytest.mark.filterwarnings('ignore:Overriding the "event_loop_policy"')

HURRIED = SiteLimits(header_seconds=0.3, idle_seconds=5.0, stalled_seconds=0.5)


async def say_ok(request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def echo(request: web.Request) -> web.StreamResponse:
    return web.Response(body=await request.read())


# ── slow clients ──


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with a_site(("GET", "/", say_ok), limits=HURRIED) as site, Raw(site) as raw:
        began = time.monotonic()
        assert await raw.rest() == b""
        assert time.monotonic() - began > 0.25


async def test_headers_that_never_end_are_not_waited_for() -> None:
    async with a_site(("GET", "/", say_ok), limits=HURRIED) as site, Raw(site) as raw:
        await raw.send(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ")
        assert await raw.rest() == b""
        await until(lambda: site.connections == 0)


async def test_one_byte_at_a_time_buys_no_time() -> None:
    async with a_site(("GET", "/", say_ok), limits=HURRIED) as site, Raw(site) as raw:
        closed = asyncio.create_task(raw.rest())
        sent = 0
        for byte in b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-A: " + b"a" * 200:
            if closed.done():
                break
            raw.writer.write(bytes([byte]))
            sent += 1
            await asyncio.sleep(0.02)
        assert await closed == b""
        assert 0 < sent < 60


async def test_between_requests_only_the_idle_time_counts_until_the_first_byte() -> None:
    async with a_site(("GET", "/", say_ok), limits=HURRIED) as site, Raw(site) as raw:
        assert (await raw.get()).status == 200
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await raw.rest(seconds=0.9)  # three times what headers may take
        assert (await raw.get()).status == 200
        await raw.send(b"G")
        assert await raw.rest() == b""
        assert time.monotonic() - began < 4


async def test_an_idle_connection_is_closed_in_the_end() -> None:
    limits = SiteLimits(header_seconds=5, idle_seconds=0.3)
    async with a_site(("GET", "/", say_ok), limits=limits) as site, Raw(site) as raw:
        assert (await raw.get()).status == 200
        assert await raw.rest() == b""


async def test_a_slow_handler_and_a_slow_body_are_not_slow_headers() -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        await asyncio.sleep(0.8)
        return web.Response(body=body)

    async with a_site(("POST", "/", slow), limits=HURRIED) as site, Raw(site) as raw:
        await raw.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n")
        for byte in b"12345678":
            await raw.send(bytes([byte]))
            await asyncio.sleep(0.1)
        assert (await raw.answer()).body == b"12345678"


async def test_a_client_that_never_reads_its_response_is_let_go() -> None:
    async def plenty(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x" * 8_000_000)

    opened = a_site(("GET", "/", plenty), limits=HURRIED)
    async with opened as site, Raw(site, receive_buffer=4096) as raw:
        raw.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: site.connections == 1)
        await until(lambda: site.connections == 0)


async def test_a_client_that_reads_slowly_is_not() -> None:
    async def plenty(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x" * 3_000_000)

    opened = a_site(("GET", "/", plenty), limits=HURRIED)
    async with opened as site, Raw(site, receive_buffer=4096) as raw:
        await raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        got = 0
        began = time.monotonic()
        while got < 3_000_000:
            got += len(await raw.reader.read(30_000))
            await asyncio.sleep(0.015)
        assert time.monotonic() - began > 1.0  # twice what a stalled one would have had


# ── how many ──


async def test_more_connections_than_there_is_room_for_are_refused() -> None:
    async def with_a_key(request: web.Request) -> web.StreamResponse:
        mark_authenticated(request)
        return web.Response(text="ok")

    limits = SiteLimits(connections=2)
    async with a_site(("GET", "/", with_a_key), limits=limits) as site:
        async with Raw(site) as one, Raw(site) as two:
            assert (await one.get()).status == (await two.get()).status == 200
            async with Raw(site) as three:
                refused = await three.answer()
                assert refused.status == 503
                assert refused.headers["Retry-After"] == "1"
                assert "Too many connections" in refused.json["error"]["message"]
                assert await three.rest() == b""
            assert (await one.get()).status == 200
        await until(lambda: site.connections == 0)
        async with Raw(site) as four:
            assert (await four.get()).status == 200


def test_the_limit_on_files_is_raised_and_then_kept_to() -> None:
    program = """
import asyncio, resource
from aiohttp import web
from parley.surfaces.api.site import SiteLimits, open_site
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 400))
async def main():
    site = await open_site(web.Application(), "127.0.0.1", 0, limits=SiteLimits())
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], site._door._most)
    await site.close(0)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["400", str((400 - 128) // 2)], done.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 400


# ── what is no request ──

BAD = {
    "length and chunks": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    b"Content-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
    b"Content-Length: 5\r\n\r\nabcd",
    "the same length twice": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
    b"Content-Length: 4\r\n\r\nabcd",
    "a list of lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4, 4\r\n\r\nabcd",
    "a signed length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd",
    "a negative length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -4\r\n\r\nabcd",
    "another coding": b"POST / HTTP/1.1\r\nHost: x\r\n"
    b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\nHost: x\r\n"
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding with a tab": b"POST / HTTP/1.1\r\nHost: x\r\n"
    b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: x\n\n",
    "one bare line feed": b"GET / HTTP/1.1\r\nHost: x\nX-A: b\r\n\r\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\nHost: x\rX-A: b\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n",
    "a space before the colon": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 4\r\n\r\nabcd",
    "a nul": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\x00c\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "no version": b"GET /\r\nHost: x\r\n\r\n",
    "an unknown method": b"SPLIT / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("wire", BAD.values(), ids=BAD.keys())
async def test_what_two_servers_could_read_in_two_ways_is_refused(wire: bytes) -> None:
    async with a_site(("*", "/", echo)) as site, Raw(site) as raw:
        await raw.send(wire)
        refused = await raw.answer()
        assert refused.status == 400
        assert refused.json["error"]["type"] == "invalid_request_error"
        assert refused.headers["Connection"] == "close"
        assert refused.headers["X-Content-Type-Options"] == "nosniff"
        assert "aiohttp" not in str(refused)
        assert await raw.rest() == b""


@pytest.mark.parametrize(
    "chunks",
    [
        b"4\nabcd\r\n0\r\n\r\n",
        b"-4\r\nabcd\r\n0\r\n\r\n",
        b"0x4\r\nabcd\r\n0\r\n\r\n",
        b"4\r\nabcdX",
    ],
)
async def test_chunks_that_are_none_are_refused_and_nothing_after_them_is_a_request(
    chunks: bytes,
) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with a_site(("*", "/", echo)) as site, Raw(site) as raw:
        await raw.send(head + chunks + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wire = await raw.rest()
        assert wire.count(b"HTTP/1.") == 1
        assert b" 400 " in wire[:16]


@pytest.mark.parametrize(
    "wire",
    [
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 9000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a" * 9000 + b": x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 100_000,
    ],
    ids=["line", "value", "name", "many", "endless"],
)
async def test_headers_may_only_be_so_long_and_so_many(wire: bytes) -> None:
    async with a_site(("GET", "/", say_ok)) as site, Raw(site) as raw:
        await raw.send(wire)
        refused = await raw.answer()
        assert refused.status in {400, 431}
        assert len(refused.body) < 300


async def test_how_many_headers_there_may_be_is_a_limit_of_the_site() -> None:
    async with a_site(("GET", "/", say_ok), limits=SiteLimits(headers=8)) as site:
        for count, status in ((6, 200), (20, 400)):
            async with Raw(site) as raw:
                await raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * count + b"\r\n")
                assert (await raw.answer()).status == status


async def test_a_bad_request_leaves_no_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_site(("GET", "/", say_ok)) as site, Raw(site) as raw:
        await raw.send(b"NONSENSE\r\n\r\n")
        await raw.answer()
    assert not caplog.records


# ── a client that leaves ──


async def test_a_handler_that_waits_is_cancelled_when_its_client_leaves() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        await request.read()
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with a_site(("POST", "/", wait)) as site:
        async with Raw(site) as raw:
            await raw.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            await asyncio.wait_for(began.wait(), 60)
        await asyncio.wait_for(cancelled.wait(), 60)


async def test_a_handler_that_streams_is_cancelled_when_its_client_leaves() -> None:
    cancelled = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        try:
            async with EventStream(request) as out:
                await out.send("first")
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with a_site(("GET", "/", stream)) as site:
        async with Raw(site) as raw:
            await raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await raw.reader.readuntil(b"data: first\n\n")
        await asyncio.wait_for(cancelled.wait(), 60)


# ── the end ──


async def test_closing_lets_requests_end_and_takes_no_more() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        began.set()
        await go_on.wait()
        return web.Response(text="done")

    async with a_site(("GET", "/", wait)) as site, Raw(site) as raw, Raw(site) as idle:
        port = site.port
        await raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(began.wait(), 60)
        closing = asyncio.create_task(site.close(60))
        assert await idle.rest(seconds=20) == b""
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)
        go_on.set()
        assert (await raw.answer()).body == b"done"
        began_closing = time.monotonic()
        await closing
        assert time.monotonic() - began_closing < 40


async def test_a_request_that_does_not_end_is_cancelled_before_closing_returns() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.5)  # longer than aiohttp itself would wait
            ended.set()
        raise AssertionError

    async with a_site(("GET", "/", wait)) as site, Raw(site) as raw:
        await raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(began.wait(), 60)
        await asyncio.wait_for(site.close(0.2), 60)
        assert ended.is_set()


async def test_a_port_that_is_taken_is_an_os_error() -> None:
    async with a_site(("GET", "/", say_ok)) as site:
        with pytest.raises(OSError):
            await open_site(web.Application(), "127.0.0.1", site.port, limits=SiteLimits())


async def test_a_body_that_comes_in_pieces_is_not_taken_for_slow_headers() -> None:
    """Its second piece may come before its handler has begun, on a connection that was used."""
    came = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        size = len(await request.read())
        if size > 1000:
            await came.wait()
        return web.json_response({"size": size})

    limits = SiteLimits(header_seconds=0.2)
    async with a_site(("POST", "/x", handler), limits=limits) as site, Raw(site) as raw:
        await raw.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
        assert (await raw.answer()).status == 200
        [connection] = site._connections()
        head = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 6000\r\n\r\n"
        # As uvloop hands over what it has read: in pieces, before any task runs.
        connection.data_received(head + b"x" * 3000)
        connection.data_received(b"x" * 3000)
        asyncio.get_running_loop().call_later(0.8, came.set)
        assert (await raw.answer()).status == 200
