"""The connection to a homeserver: whole answers, and faults that say what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.connection import Connection, MatrixFault


@asynccontextmanager
async def _answered_by(
    home: Path, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> AsyncIterator[Connection]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        connection = Connection(Account(url, "@bot:x", "DEVICE", "a-secret", "pickle"), home)
        try:
            yield connection
        finally:
            await connection.close()


async def test_an_answer_that_comes_in_pieces_is_read_to_its_end(tmp_path: Path) -> None:
    gone_on = asyncio.Event()

    async def in_pieces(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        await answer.write(b'{"chunk": [')
        gone_on.set()
        for number in range(50):
            await asyncio.sleep(0)
            await answer.write(f'"{"x" * 5000}", {number}, '.encode())
        await answer.write(b"1, 2]}")
        return answer

    async with _answered_by(tmp_path, in_pieces) as connection:
        told = await connection.call("GET", "/v3/messages")

    assert gone_on.is_set()
    assert told["chunk"][-2:] == [1, 2]
    assert len(told["chunk"]) == 102


@pytest.mark.parametrize("body", ["no JSON", "[1]", ""])
async def test_what_is_no_homeserver_is_a_fault(tmp_path: Path, body: str) -> None:
    async def strange(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=body)

    async with _answered_by(tmp_path, strange) as connection:
        with pytest.raises(MatrixFault, match="no Matrix homeserver"):
            await connection.call("GET", "/v3/sync")


async def test_a_refusal_tells_its_code_and_how_long_to_wait(tmp_path: Path) -> None:
    async def limited(_request: web.Request) -> web.StreamResponse:
        told = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too fast", "retry_after_ms": 1500}
        return web.json_response(told, status=429)

    async with _answered_by(tmp_path, limited) as connection:
        with pytest.raises(MatrixFault) as found:
            await connection.call("PUT", "/v3/rooms/!a/send/m.room.message/1", {})

    fault = found.value
    assert (fault.status, fault.code, fault.after) == (429, "M_LIMIT_EXCEEDED", 1.5)
    assert fault.is_passing
    assert "a-secret" not in str(fault) + repr(connection.account)


async def test_a_homeserver_that_is_away_is_a_passing_fault(tmp_path: Path) -> None:
    account = Account("http://127.0.0.1:9", "@bot:x", "DEVICE", "a-secret", "pickle")
    connection = Connection(account, tmp_path)
    with pytest.raises(MatrixFault) as found:
        await connection.call("GET", "/v3/sync")
    await connection.close()
    assert found.value.status == 0
    assert found.value.is_passing


async def test_plain_text_never_goes_into_a_room_that_was_encrypted_once(tmp_path: Path) -> None:
    asked: list[str] = []

    async def note(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.json_response({"event_id": "$1"})

    async with _answered_by(tmp_path, note) as connection:
        connection.note_encrypted("!room")
        with pytest.raises(MatrixFault, match="encrypted"):
            await connection.send("!room", "m.room.message", {"body": "secret"}, "t1")
        with pytest.raises(MatrixFault, match="encrypted"):
            await connection.put("!room", "m.room.message", {"body": "secret"}, "t2")

    assert asked == []
