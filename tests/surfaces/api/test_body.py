"""What a request may bring, how large, and how slowly."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from parley.surfaces.api import body
from parley.surfaces.api.body import read_body, read_json
from parley.surfaces.api.errors import ApiError, ClientGone
from parley.surfaces.api.site import Site
from tests.surfaces.api.raw import Answer, Raw, a_site
from tests.waiting import until

MOST = 300_000


async def take_json(request: web.Request) -> web.StreamResponse:
    return web.json_response(await read_json(request, most=MOST, seconds=0.4))


async def take_body(request: web.Request) -> web.StreamResponse:
    return web.json_response(len(await read_body(request, most=MOST, seconds=0.4)))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with a_site(("POST", "/json", take_json), ("POST", "/body", take_body)) as opened:
        yield opened


async def post(site: Site, body: bytes, **headers: str) -> Answer:
    async with Raw(site) as raw:
        return await raw.ask(
            "POST", "/json", body, **{"Content_Type": "application/json", **headers}
        )


# ── what ──


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON; charset=utf-8", 'application/json; charset="UTF-8"'],
)
async def test_a_json_object_is_taken(site: Site, kind: str) -> None:
    answer = await post(site, '{"a": [1, "é😀\\n"], "b": {}}'.encode(), Content_Type=kind)
    assert (answer.status, answer.json) == (200, {"a": [1, "é😀\n"], "b": {}})


async def test_a_body_without_a_type_is_taken_for_json(site: Site) -> None:
    async with Raw(site) as raw:
        assert (await raw.ask("POST", "/json", b"{}")).status == 200


async def test_an_escaped_pair_is_one_character(site: Site) -> None:
    assert (await post(site, b'{"a": "\\ud83d\\ude00"}')).json == {"a": "😀"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
        {"Content_Type": "application/json; charset=latin-1"},
        {"Content_Type": "application/jsonp"},
        {"Content_Type": ""},
        {"Content_Encoding": "gzip"},
        {"Content_Encoding": "identity, gzip"},
    ],
    ids=str,
)
async def test_another_kind_of_body_is_refused(site: Site, headers: dict[str, str]) -> None:
    assert (await post(site, b"{}", **headers)).status == 415


async def test_a_packed_body_is_not_unpacked(site: Site) -> None:
    bomb = gzip.compress(b'{"a": "' + b" " * 10_000_000 + b'"}')
    assert (await post(site, bomb, Content_Encoding="gzip")).status == 415
    assert (await post(site, bomb)).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b" ",
        b"hello",
        b"[]",
        b"null",
        b'"a"',
        b'{"a": 1',
        b'{"a": 1}{',
        b'{"a": NaN}',
        b'{"a": [Infinity]}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 2}}',
        b'{"a": "\xff"}',
        b"\xef\xbb\xbf{}",
        '{"a": 1}'.encode("utf-16"),
        b'{"a": "\\ud83d"}',
        b'{"\\udc00": 1}',
        b'{"a": ' + b"9" * 10_000 + b"}",
        b'{"a":' * 50_000,
        b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda body: repr(body[:20]),
)
async def test_what_is_no_json_object_is_refused(site: Site, body: bytes) -> None:
    answer = await post(site, body)
    assert (answer.status, answer.code) == (400, "invalid_json")
    assert len(answer.body) < 300


async def test_an_empty_body_is_no_object(site: Site) -> None:
    async with Raw(site) as raw:
        assert (await raw.ask("POST", "/json", Content_Length="0")).status == 400


def test_the_depth_that_is_allowed_can_be_written_and_read_again() -> None:
    from parley.surfaces.api.body import parse_object

    deep: Any = "x"
    for _ in range(127):
        deep = [deep]
    assert parse_object(json.dumps({"a": deep}).encode()) == {"a": deep}


# ── how large ──


async def test_a_body_that_says_it_is_too_large_is_not_even_read(site: Site) -> None:
    async with Raw(site) as raw:
        answer = await raw.ask("POST", "/body", Content_Length=str(MOST + 1))
        assert (answer.status, answer.code) == (413, "request_too_large")


async def test_the_largest_body_is_taken(site: Site) -> None:
    async with Raw(site) as raw:
        assert (await raw.ask("POST", "/body", b"x" * MOST)).json == MOST


async def test_a_body_that_does_not_say_is_refused_when_it_gets_too_large(site: Site) -> None:
    async with Raw(site) as raw:
        await raw.send(b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(MOST // 50_000 + 1):
            await raw.send(b"c350\r\n" + b"x" * 50_000 + b"\r\n")
        assert (await raw.answer()).status == 413


# ── how slow ──


async def test_a_body_that_does_not_come_is_not_waited_for(site: Site) -> None:
    async with Raw(site) as raw:
        began = time.monotonic()
        await raw.send(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
        answer = await raw.answer()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert 0.3 < time.monotonic() - began < 20


async def test_a_body_that_trickles_is_not_waited_for(site: Site) -> None:
    async with Raw(site) as raw:
        await raw.send(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        answering = asyncio.create_task(raw.answer())
        sent = 0
        while not answering.done() and sent < 200:
            await raw.send(b"x")
            sent += 1
            await asyncio.sleep(0.02)
        assert (await answering).status == 408
        assert sent < 60


async def test_a_body_that_comes_steadily_may_take_its_time(site: Site) -> None:
    async with Raw(site) as raw:
        await raw.send(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        began = time.monotonic()
        for _ in range(20):
            await raw.send(b"x" * 5000)
            await asyncio.sleep(0.05)
        assert (await raw.answer()).json == 100_000
        assert time.monotonic() - began > 0.8


# ── cut ──


async def test_a_body_that_is_cut_has_nobody_to_answer() -> None:
    seen: list[BaseException] = []

    async def take(request: web.Request) -> web.StreamResponse:
        task = asyncio.create_task(read_body(request, most=MOST, seconds=5))
        try:
            await asyncio.shield(task)
        finally:
            try:
                await task
            except ClientGone as error:
                seen.append(error)
        raise AssertionError

    async with a_site(("POST", "/", take)) as site:
        async with Raw(site) as raw:
            await raw.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
            await until(lambda: site.connections == 1)
        await until(lambda: seen)


async def test_a_body_of_very_many_values_is_refused_before_they_are_built() -> None:
    many = b'{"a":{' + b",".join(b'"%d":1' % number for number in range(300_000)) + b"}}"
    with pytest.raises(ApiError, match="200000 values at most"):
        body.parse_object(many)


async def test_commas_within_a_text_are_no_values() -> None:
    told = {"a": 'x\\",' * 300_000}
    assert body.parse_object(json.dumps(told).encode()) == told
