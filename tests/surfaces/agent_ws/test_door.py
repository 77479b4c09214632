"""Who is let in, what is refused, and that threads and keys stay apart."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest

from parley.config.api_keys import KeyFile
from parley.config.settings import ApiConfig
from tests.gateway.house import House
from tests.surfaces.agent_ws.line import ALL, DirectHouse
from tests.surfaces.api.served import a_key


@pytest.mark.parametrize(
    "thread", [None, "", "  ", "x" * 801, "a\nb"], ids=["none", "empty", "blank", "long", "control"]
)
async def test_a_thread_must_be_named(direct: DirectHouse, thread: str | None) -> None:
    async with aiohttp.ClientSession() as http:
        query = {} if thread is None else {"thread_id": thread}
        headers = {"Authorization": f"Bearer {direct.key}"}
        url = f"{direct.where}/agent_ws/"
        async with http.ws_connect(url, params=query, headers=headers) as socket:
            assert await socket.receive_json(timeout=5) == {
                "type": "ERROR",
                "code": "THREAD_ID_REQUIRED",
                "details": "thread_id query parameter is required",
            }
            await socket.receive(timeout=5)
            assert socket.close_code == 4400


async def _status(direct: DirectHouse, path: str = "/agent_ws/", **headers: str) -> int:
    """What the upgrade is refused with."""
    async with aiohttp.ClientSession() as http:
        url = f"{direct.where}{path}?thread_id=t1"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(url, headers=headers)
        return refused.value.status


async def test_only_a_good_key_of_a_known_page_opens_it(direct: DirectHouse) -> None:
    good = {"Authorization": f"Bearer {direct.key}"}
    assert await _status(direct) == 401
    assert await _status(direct, Authorization="Bearer nobody") == 401
    assert await _status(direct, Origin="https://elsewhere.example", **good) == 403
    assert await _status(direct, "/p/coder/agent_ws/", **good) == 404
    assert await _status(direct, **{**good, "X-Parley-Hops": "6"}) == 400
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{direct.where}/agent_ws/?thread_id=t1", headers=good) as answer,
    ):
        assert answer.status == 426
    runs_only = a_key(direct.house.profile, "runner", "runs")
    assert await _status(direct, Authorization=f"Bearer {runs_only}") == 403
    async with direct.line(key=a_key(direct.house.profile, "desk"), path="/agent_ws") as line:
        assert await line.ask("hello") == "echo: hello"
    async with direct.line(
        key=a_key(direct.house.profile, "other"), path="/p/default/agent_ws/"
    ) as line:
        assert line.seen[0]["profile"] == "default"


async def test_messages_count_against_the_rate_of_the_key(house: House) -> None:
    direct = DirectHouse(house, config=ApiConfig(requests_per_minute=3))
    await direct.open()
    async with direct.line() as line:
        for _ in range(2):
            await line.ask("hello")
        [error] = await line.exchange("hello")
        assert error["code"] == "rate_limit_exceeded"
    assert await _status(direct, Authorization=f"Bearer {direct.key}") == 429


async def test_a_key_that_was_revoked_is_told_nothing_more(direct: DirectHouse) -> None:
    key = a_key(direct.house.profile, "desk")
    async with direct.line(key=key) as line:
        await line.send("USER_MESSAGE", text="count [[chunks 100]][[pace 0.1]]")
        await line.until("AGENT_EVENT_TEXT_CHUNK")
        KeyFile(direct.house.profile).revoke("desk")
        async with asyncio.timeout(60):
            while (await line.socket.receive()).type is aiohttp.WSMsgType.TEXT:
                continue
        assert line.socket.close_code == 4401


_BAD: list[tuple[str, Any]] = [
    ("no-json", "hello"),
    ("a-list", "[]"),
    ("no-type", "{}"),
    ("unknown-type", '{"type": "AGENT_EVENT_END"}'),
    ("number-as-type", '{"type": 7}'),
    ("wrong-field", '{"type": "USER_MESSAGE", "text": 7}'),
    ("long-id", json.dumps({"type": "USER_MESSAGE", "text": "x", "id": "i" * 256})),
    ("twice-named", '{"type": "USER_MESSAGE", "text": "a", "text": "b"}'),
    ("deep", '{"type": "USER_MESSAGE", "x": ' + "[" * 500 + "]" * 500 + "}"),
    ("binary", b'{"type": "USER_MESSAGE", "text": "x"}'),
]


@pytest.mark.parametrize("sent", [each for _, each in _BAD], ids=[name for name, _ in _BAD])
async def test_what_is_not_of_the_protocol_ends_the_connection(
    direct: DirectHouse, sent: str | bytes
) -> None:
    async with direct.line(knows=ALL) as line:
        await (
            line.socket.send_str(sent) if isinstance(sent, str) else line.socket.send_bytes(sent)
        )
        error = await line.hear()
        assert (error["type"], error["code"]) == ("ERROR", "BAD_FRAME")
        assert error["details"].endswith(".")
        assert await line.closed() == 4002
    assert not direct.house.model.requests


async def test_a_frame_that_is_too_large_ends_the_connection(direct: DirectHouse) -> None:
    large = json.dumps({"type": "USER_MESSAGE", "text": "x" * (33 * 1024 * 1024)})
    async with direct.line() as line:
        # It may be gone before all of it is sent, and then its last words are lost.
        with contextlib.suppress(ConnectionError):
            await line.socket.send_str(large)
        async with asyncio.timeout(10):
            while (heard := await line.socket.receive()).type is aiohttp.WSMsgType.TEXT:
                assert "BAD_FRAME" in heard.data
        assert line.socket.closed
    assert not direct.house.model.requests


async def test_nothing_beyond_plain_frames_goes_to_who_said_no_hello(direct: DirectHouse) -> None:
    async with direct.line() as line:
        await line.ask("[[tool now {}]]", id="m1")
    assert {frame["type"] for frame in line.seen} == {
        "STATUS",
        "AGENT_EVENT_TEXT_CHUNK",
        "AGENT_EVENT_END",
    }
    assert "pending" not in line.seen[-1]


async def test_too_many_connections_of_one_thread_are_refused(direct: DirectHouse) -> None:
    async with asyncio.TaskGroup() as group:
        enough, free = asyncio.Event(), asyncio.Event()
        count = 0

        async def stay() -> None:
            nonlocal count
            async with direct.line():
                count += 1
                if count == 8:
                    enough.set()
                await free.wait()

        for _ in range(8):
            group.create_task(stay())
        await enough.wait()
        async with aiohttp.ClientSession() as http:
            headers = {"Authorization": f"Bearer {direct.key}"}
            url = f"{direct.where}/agent_ws/?thread_id=t1"
            async with http.ws_connect(url, headers=headers) as socket:
                assert (await socket.receive_json(timeout=5))["code"] == "BUSY"
                await socket.receive(timeout=5)
                assert socket.close_code == 4429
        free.set()


async def test_two_people_with_three_threads_each_share_nothing(direct: DirectHouse) -> None:
    people = {name: a_key(direct.house.profile, name) for name in ("ann", "bob")}
    threads = ("t1", "6:matrix18:@alice:example.org2:C1", "a/b")

    async def talk(name: str, key: str, thread: str) -> None:
        async with direct.line(thread, key=key, knows=ALL) as line:
            for number in range(3):
                secret = f"{name} in {thread} {number}"
                assert (await line.ask(secret, id=f"m{number}")).endswith(secret)

    async with asyncio.TaskGroup() as group:
        for name, key in people.items():
            for thread in threads:
                group.create_task(talk(name, key, thread))
    lanes = await direct.lanes()
    assert len(lanes) == 6
    talks = sorted(
        {text.removeprefix("echo: ").rpartition(" ")[0] for _, text in said}.pop()
        for said in lanes.values()
    )
    assert talks == sorted(f"{name} in {thread}" for name in people for thread in threads)
    for said in lanes.values():
        assert len({text.removeprefix("echo: ").rpartition(" ")[0] for _, text in said}) == 1
        assert len(said) == 6
    for asked in direct.house.model.requests:
        texts = [str(each["content"]) for each in asked.json["messages"] if each["role"] == "user"]
        assert len({text.rpartition(" ")[0] for text in texts}) == 1
