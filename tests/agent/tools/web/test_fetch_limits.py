"""A hostile answer costs a bounded time and memory, and ends in a sentence."""

from __future__ import annotations

import asyncio
import gzip
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest
from aiohttp import web

from tests.agent.tools.web.reader import Reader
from tests.servers.web_site import Handler, WebSite, raw_site
from tests.waiting import until

PROC = Path("/proc/self/task")

MB = 1_000_000


def bomb(megabytes: int, wbits: int) -> bytes:
    """So many megabytes of zeros: one packed block again and again."""
    packer = zlib.compressobj(9, wbits=wbits)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b"\0" * MB) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * megabytes


@pytest.mark.parametrize(("encoding", "wbits"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
async def test_a_bomb_is_not_unpacked(
    site: WebSite, reader: Reader, encoding: str, wbits: int
) -> None:
    packed = bomb(1000, wbits)
    assert len(packed) < 2 * MB
    url = site.has("/", packed, Content_Encoding=encoding)
    tracemalloc.start()
    result = await reader.reads(url)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.text == "The page is larger than 5 MB."
    assert peak < 40 * MB


async def test_a_bomb_in_an_error_is_not_unpacked(site: WebSite, reader: Reader) -> None:
    url = site.has("/", bomb(1000, 31), status=500, Content_Encoding="gzip")
    tracemalloc.start()
    result = await reader.reads(url)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.text == "127.0.0.1 answered 500 Internal Server Error."
    assert peak < 20 * MB


async def test_a_packed_page_is_read(site: WebSite, reader: Reader) -> None:
    url = site.has("/", gzip.compress(b"<p>unpacked</p>"), Content_Encoding="gzip")
    assert "unpacked" in (await reader.reads(url)).text


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,deflate", "br", "zstd", "x", "aes128gcm"])
async def test_what_is_packed_twice_or_in_another_way_is_refused(
    site: WebSite, reader: Reader, encoding: str
) -> None:
    body = gzip.compress(gzip.compress(b"words"))
    result = await reader.reads(site.has("/", body, Content_Encoding=encoding))
    assert not result.ok
    assert result.text.startswith("127.0.0.1 ")


_CUT_OFF = gzip.compress(b"x" * 9999, mtime=0)[:20]


@pytest.mark.parametrize("body", [b"not packed at all", _CUT_OFF], ids=["plain", "cut off"])
async def test_what_is_packed_badly_is_told(site: WebSite, reader: Reader, body: bytes) -> None:
    result = await reader.reads(site.has("/", body, type="text/plain", Content_Encoding="gzip"))
    assert result.text.startswith(("127.0.0.1 ", "[page"))
    assert "Traceback" not in result.text


async def endless(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    while True:
        await response.write(b"more " * 10_000)


async def drip(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    while True:
        await response.write(b".")
        await asyncio.sleep(0.02)


async def silence(request: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


async def test_an_endless_page_is_left(site: WebSite) -> None:
    reader = Reader(allow=[site.place], megabytes=1)
    result = await reader.reads(site.does("/", endless))
    assert result.text == "The page is larger than 1 MB."


async def test_a_page_that_says_it_is_too_large_is_not_read(site: WebSite) -> None:
    reader = Reader(allow=[site.place], megabytes=1)
    assert not (await reader.reads(site.has("/more", b"x" * (MB + 1), type="text/plain"))).ok
    assert (await reader.reads(site.has("/fits", b"x" * MB, type="text/plain"))).ok


@pytest.mark.parametrize("slow", [drip, silence])
async def test_a_slow_page_is_left(site: WebSite, slow: Handler) -> None:
    reader = Reader(allow=[site.place], seconds=0.4)
    begun = time.monotonic()
    result = await reader.reads(site.does("/", slow))
    assert result.text == "The page took longer than 0.4 s."
    assert time.monotonic() - begun < 30


async def test_slow_redirects_share_one_time(site: WebSite) -> None:
    async def onward(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return web.Response(status=302, headers={"Location": "/"})

    result = await Reader(allow=[site.place], seconds=0.5).reads(site.does("/", onward))
    assert result.text == "The page took longer than 0.5 s."


@pytest.mark.parametrize("count", [1, 3000])
async def test_huge_headers_are_refused(site: WebSite, reader: Reader, count: int) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        long = {f"X-{number}": "y" * (100_000 // count) for number in range(count)}
        return web.Response(text="words", headers=long)

    result = await reader.reads(site.does("/", answer))
    assert result.text == "127.0.0.1 sent an answer that cannot be read."


@pytest.mark.parametrize("said", [b"+PONG\r\n", b"SSH-2.0-x\r\n\r\n", b"", b"\0" * 9999])
async def test_what_is_no_http_is_told(said: bytes) -> None:
    async with raw_site(said) as url:
        result = await Reader(allow=["127.0.0.1"]).reads(url)
    assert not result.ok
    assert result.text.startswith("127.0.0.1 ")


HOSTILE = {
    "nested divs": "<div>" * 100_000 + "the words",
    "nested lists": "<ul><li>" * 50_000 + "the words",
    "nested quotes": "<blockquote>" * 400 + "<p>the words</p>",
    "5 MB of links": "the words" + "<a>" * 1_650_000,
    "5 MB of links with addresses": "the words" + "<a href=x>y</a>" * 330_000,
    "open comments": "the words" + "<!--" * 1_000_000,
    "open tags": "the words" + "<a " * 1_000_000,
    "open declarations": "the words" + "<![" * 1_000_000,
    "open scripts": "the words" + "<script>" * 500_000,
    "entities": "the words" + "&amp" * 1_000_000,
    "attributes": "the words<a " + "x=y " * 1_000_000 + ">",
    "spaces": "the words" + " \n" * 2_000_000 + ".",
    "an endless name": "the words<" + "a" * 4_000_000,
    "an endless number": "the words&#" + "1" * 1_000_000 + ";" + "&#9" * 500_000,
    "tables": "the words" + "<table><tr><td>" * 300_000,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_html_costs_a_bounded_time(site: WebSite, name: str) -> None:
    page = HOSTILE[name]
    assert len(page) < 5 * MB
    reader = Reader(allow=[site.place], seconds=6)
    url = site.has("/", page)
    begun, longest = time.monotonic(), 0.0

    async def feel() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.01)
            longest = max(longest, time.thread_time() - before)

    feeling = asyncio.create_task(feel())
    result = await reader.reads(url)
    feeling.cancel()
    assert time.monotonic() - begun < 60
    assert longest < 3
    if result.ok:
        assert "the words" in result.text or len(result.text) > 15_000
    else:
        assert result.text == "The page took longer than 6 s."


async def test_an_error_page_does_not_hold_the_others_up(site: WebSite, reader: Reader) -> None:
    url = site.has("/", "<" + "a" * 65_000, status=500)
    begun = time.monotonic()
    assert not (await reader.reads(url)).ok
    assert time.monotonic() - begun < 30


@pytest.mark.skipif(not PROC.exists(), reason="children are read from /proc")
async def test_no_process_is_left_when_the_time_is_over(site: WebSite) -> None:
    def children() -> list[str]:
        return [pid for file in PROC.glob("*/children") for pid in file.read_text().split()]

    before = children()
    reader = Reader(allow=[site.place], seconds=3)
    reading = asyncio.create_task(reader.reads(site.has("/", HOSTILE["tables"])))
    await until(lambda: children() != before)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: children() == before)
