"""What the whole server refuses, and how it behaves while it ends."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from parley.config.settings import ApiConfig
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import user
from tests.surfaces.api.served import Got, Served, served_api
from tests.waiting import until

CHAT, RESPONSES, RUNS = "/v1/chat/completions", "/v1/responses", "/v1/runs"
BODY = {"messages": [user("hi")]}
MB = 1024 * 1024


def code_of(got: Got) -> str:
    return str(json.loads(got.body)["error"]["code"])


# ── the body ──


@pytest.mark.parametrize("path", [CHAT, RESPONSES, RUNS])
async def test_a_body_that_is_too_large_is_refused(house: House, path: str) -> None:
    async with served_api(house, config=ApiConfig(body_mb=1)) as served:
        text = "x" * MB
        got = await served.post(path, {"messages": [user(text)], "input": text})
        assert (got.status, code_of(got)) == (413, "request_too_large")
        assert (await served.post(CHAT, BODY)).status == 200
    assert house.model.total == 1


async def test_a_body_that_does_not_say_how_large_it_is_is_counted(house: House) -> None:
    async with served_api(house, config=ApiConfig(body_mb=1)) as served:

        async def endless() -> Any:
            for _ in range(40):
                yield b" " * 64 * 1024

        head = {"Authorization": f"Bearer {served.key}", "Content-Type": "application/json"}
        async with served.http.post(served.api.where + CHAT, data=endless(), headers=head) as got:
            assert got.status == 413
    assert house.model.total == 0


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"messages": NaN}', "application/json", 400),
        (b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}", "application/json", 400),
        (b"\xff\xfe{}", "application/json", 400),
        (b'{"messages":[{"role":"user","content":"\\ud800"}]}', "application/json", 400),
        (b"messages=hi", "application/x-www-form-urlencoded", 415),
        (b"{}", "text/plain", 415),
    ],
)
async def test_what_is_no_json_is_refused_in_openais_shape(
    served: Served, model: ScriptedModel, body: bytes, kind: str, status: int
) -> None:
    head = {"Authorization": f"Bearer {served.key}", "Content-Type": kind}
    async with served.http.post(served.api.where + CHAT, data=body, headers=head) as got:
        told = await got.json()
        assert got.status == status
    assert set(told["error"]) == {"message", "type", "param", "code"}
    assert model.total == 0


async def test_a_large_file_in_a_request_does_not_hold_up_the_others(
    served: Served, house: House
) -> None:
    data = base64.b64encode(b"x" * 8 * MB).decode()
    part = {"type": "file", "file": {"filename": "big.bin", "file_data": data}}
    large = {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "hi"}]}]}
    got, small = await asyncio.gather(served.post(CHAT, large), served.post(CHAT, BODY))
    assert (got.status, small.status) == (200, 200)
    [kept] = list(house.profile.attachments.iterdir())
    assert kept.stat().st_size == 8 * MB
    assert kept.stat().st_mode & 0o077 == 0


async def test_a_refused_request_leaves_no_file(served: Served, house: House) -> None:
    data = base64.b64encode(b"secret").decode()
    part = {"type": "file", "file": {"filename": "a.txt", "file_data": data}}
    body = {"messages": [{"role": "user", "content": [part]}, {"role": "user", "content": None}]}
    assert (await served.post(CHAT, body)).status == 400
    assert not house.profile.attachments.exists() or not list(house.profile.attachments.iterdir())


# ── the end ──


async def test_while_it_drains_those_under_way_are_answered_and_new_ones_sent_away(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    async with served_api(house, gateway={"drain_seconds": 5}) as served:
        stage.then(Reply(text="Still here.", delay=0.3))
        first = asyncio.create_task(served.post(CHAT, BODY))
        await model.until(lambda seen: seen.open_streams == 1)
        gateway = house.gateway
        assert gateway is not None
        closing = asyncio.create_task(house.close())
        await until(lambda: house.gateway is None)
        late = [
            await served.post(path, {**BODY, "input": "hi"}) for path in (CHAT, RESPONSES, RUNS)
        ]
        ready = await served.get("/readyz")
        alive = await served.get("/healthz")
        assert json.loads((await first).body)["choices"][0]["message"]["content"] == "Still here."
        await closing
    for got in late:
        assert (got.status, code_of(got)) == (503, "stopping")
        assert int(got.headers["Retry-After"]) >= 1
    assert (ready.status, alive.status) == (503, 200)
    assert model.total == 1


async def test_one_that_is_not_done_when_the_time_is_over_is_told_so(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    async with served_api(house) as served:
        stage.then(Reply(text="never whole", chunks=2, chunk_delay=30))
        asking = asyncio.create_task(served.post(CHAT, BODY))
        await model.until(lambda seen: seen.open_streams == 1)
        await house.close()
        got = await asking
    assert got.status == 503
    assert int(got.headers["Retry-After"]) >= 1


async def test_every_answer_says_what_a_browser_may_not_do(served: Served) -> None:
    for got in (
        await served.post(CHAT, BODY),
        await served.post(CHAT, {**BODY, "stream": True}),
        await served.post(CHAT, {}),
        await served.get("/nowhere"),
        await served.get("/v1/models", key="sk-nobody"),
    ):
        assert got.headers["X-Content-Type-Options"] == "nosniff"
        assert got.headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in got.headers["Content-Security-Policy"]
        assert "aiohttp" not in str(got.headers).lower()
        assert got.headers["X-Request-Id"]


async def test_a_hundred_at_once_are_all_answered(served: Served, model: ScriptedModel) -> None:
    got = await asyncio.gather(
        *(served.post(CHAT, {"messages": [user(f"n{number}")]}) for number in range(100))
    )
    texts = [json.loads(one.body)["choices"][0]["message"]["content"] for one in got]
    assert texts == [f"echo: n{number}" for number in range(100)]
    assert len({one.session for one in got}) == 100
