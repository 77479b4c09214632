"""A request is answered once, whatever breaks between the first time and the second."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
import pytest

from parley.agent.tools import TOOLS
from tests.gateway.hand_tool import HandTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import user
from tests.surfaces.api.asking_twice import (
    BODIES,
    CHAT,
    RESPONSES,
    SLOW,
    ask,
    both_routes,
    streamed,
    text_of,
)
from tests.surfaces.api.served import Got, Served, served_api
from tests.waiting import until

# ── the gateway ends ──


@both_routes
async def test_the_first_result_is_there_after_a_restart(
    served: Served, model: ScriptedModel, path: str
) -> None:
    first = await ask(served, path)
    await served.restart()
    again = await ask(served, path)
    assert again.body == first.body
    assert model.total == 1
    assert (await ask(served, path, temperature=1)).status == 409


async def test_a_gateway_that_ends_tells_everyone_who_waits(
    served: Served, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(SLOW)
    first = asyncio.create_task(ask(served))
    await model.until(lambda seen: seen.open_streams == 1)
    other = asyncio.create_task(ask(served))
    await served.get("/v1/models")  # by now the other waits too
    await served.house.close()
    for got in await asyncio.gather(first, other):
        assert got.status == 503
        assert int(got.headers["Retry-After"]) >= 1


async def test_one_that_comes_too_late_leaves_its_key_free(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    async with served_api(house, gateway={"drain_seconds": 5}) as served:
        stage.then(Reply(text="First.", delay=0.2))
        first = asyncio.create_task(ask(served, id="k1"))
        await model.until(lambda seen: seen.open_streams == 1)
        closing = asyncio.create_task(house.close())
        await until(lambda: house.gateway is None)
        assert (await ask(served, id="k2")).status == 503
        assert text_of(await first) == "First."
        await closing
        await served.open()
        assert text_of(await ask(served, id="k1")) == "First."
        assert text_of(await ask(served, id="k2")) == "echo: hi"
    assert model.total == 2


async def test_going_on_from_a_response_twice_with_one_key_goes_on_once(
    served: Served, house: House, model: ScriptedModel
) -> None:
    before = json.loads((await served.post(RESPONSES, {"input": "one"})).body)["id"]
    first = await ask(served, RESPONSES, previous_response_id=before)
    again = await ask(served, RESPONSES, previous_response_id=before)
    assert (again.body, again.session) == (first.body, first.session)
    assert house.words() == ["one", "echo: one", "hi"]
    assert model.total == 2


async def left_in_the_middle(served: Served, path: str, model: ScriptedModel) -> None:
    """A client that asks, and goes away while the model speaks."""
    asking = asyncio.create_task(ask(served, path))
    await model.until(lambda seen: seen.open_streams == 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


@both_routes
async def test_a_client_that_leaves_gets_its_answer_when_it_asks_again(
    served: Served, stage: Stage, model: ScriptedModel, path: str
) -> None:
    stage.then(Reply(text="Here.", delay=0.2))
    await left_in_the_middle(served, path, model)
    again = await ask(served, path)
    assert text_of(again) == "Here."
    assert (model.total, model.aborted) == (1, 0)


@both_routes
async def test_a_request_that_a_crash_broke_off_is_resumed_and_answered_once(
    served: Served, stage: Stage, model: ScriptedModel, path: str
) -> None:
    stage.then(SLOW, Reply(text="After all."))
    asking = asyncio.create_task(ask(served, path))
    await model.until(lambda seen: seen.open_streams == 1)
    await served.crash()
    with pytest.raises((aiohttp.ClientError, AssertionError)):
        text_of(await asking)
    await served.open()
    first, again = await asyncio.gather(ask(served, path), ask(served, path))
    assert text_of(first) == text_of(again) == "After all."
    assert first.body == again.body
    assert model.total == 2
    [said] = [[m.text for m in one] for one in await served.transcripts() if one]
    assert said == ["hi", "After all."]


@both_routes
async def test_a_request_that_a_restart_set_aside_is_resumed(
    served: Served, stage: Stage, model: ScriptedModel, path: str
) -> None:
    stage.then(SLOW, Reply(text="After all."))
    await left_in_the_middle(served, path, model)
    await served.restart()
    assert text_of(await ask(served, path)) == "After all."
    assert model.total == 2


async def test_a_response_answered_after_a_crash_can_be_gone_on_from(
    served: Served, stage: Stage, house: House, model: ScriptedModel
) -> None:
    stage.then(SLOW, Reply(text="After all."))
    await left_in_the_middle(served, RESPONSES, model)
    await served.crash()
    await served.open()
    id = json.loads((await ask(served, RESPONSES)).body)["id"]
    assert json.loads((await served.get(f"{RESPONSES}/{id}")).body)["id"] == id
    await served.post(RESPONSES, {"input": "and?", "previous_response_id": id})
    assert house.words() == ["hi", "After all.", "and?"]


async def test_a_call_of_a_tool_is_not_made_twice_for_a_client_that_asks_twice(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandTool()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    body = {"messages": [user('[[tool hand {"word": "pay"}]]')]}
    async with served_api(house, agent={"tools": ["hand"]}) as served:
        named = {"Idempotency-Key": "k1"}
        asking = asyncio.create_task(served.post(CHAT, body, headers=named))
        while not hand.began:
            await asyncio.sleep(0.005)
        asking.cancel()
        second = asyncio.create_task(served.post(CHAT, body, headers=named))
        hand.let_go()
        assert text_of(await second) == "tool said: hand did pay"
    assert hand.log == [("began", "pay"), ("ended", "pay")]


# ── the client is slow ──


LARGE = Reply(text="\N{GRINNING FACE}" * 600_000, chunks=40)


@asynccontextmanager
async def slow_reader(served: Served, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """A client that asks for a stream, and does not read it by itself."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    port = urlsplit(served.base).port
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
    body = json.dumps(BODIES[path] | {"stream": True}).encode()
    writer.write(
        b"POST %b HTTP/1.0\r\nHost: [::1]\r\nAuthorization: Bearer %b\r\nIdempotency-Key: k1\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (path.encode(), served.key.encode(), len(body), body)
    )
    try:
        yield reader
    finally:
        writer.transport.abort()


async def test_one_whose_first_client_does_not_read_is_answered_at_once(
    served: Served, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(LARGE)
    async with slow_reader(served, CHAT) as first, asyncio.timeout(60):
        await first.readuntil(b"\r\n\r\n")
        assert text_of(await ask(served)) == LARGE.text
    assert model.total == 1


async def test_a_response_is_the_same_though_its_first_client_read_it_late(
    served: Served, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(LARGE)
    async with slow_reader(served, RESPONSES) as first, asyncio.timeout(60):
        await first.readuntil(b"\r\n\r\n")
        await model.until(lambda seen: seen.open_streams == 0)
        await until_committed(served)
        got = Got(200, {}, await first.read())
    assert streamed(got)[-1]["response"] == json.loads((await ask(served, RESPONSES)).body)
    assert model.total == 1


async def until_committed(served: Served) -> None:
    while not any(len(one) == 2 for one in await served.transcripts()):
        await asyncio.sleep(0.01)
    for _ in range(3):  # time enough for whoever would write it down
        await served.get("/v1/models")
