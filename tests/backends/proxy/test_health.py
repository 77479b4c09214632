"""Whether the far end is there, for `gateway status`."""

from __future__ import annotations

import asyncio
import time

from parley.backends.proxy import ProxyBackend
from parley.config import Settings
from parley.profiles import OutsideScope
from parley.protocol import Final
from tests.backends.proxy.builders import KEY, a_turn, backend_at, ending, proxied, run
from tests.servers.ports import free_port
from tests.servers.raw_sse import Answer, Seen, as_json, stream


def well(seen: Seen) -> Answer:
    return as_json({"object": "list", "data": []})


async def test_a_far_end_that_answers_is_well() -> None:
    async with proxied(well, key=KEY) as (backend, far):
        assert await backend.health() is None
    assert [seen.path for seen in far.seen] == ["/healthz", "/v1/models"]
    assert far.seen[1].headers["authorization"] == f"Bearer {KEY}"


async def test_a_far_end_that_knows_neither_place_is_there_all_the_same() -> None:
    async with proxied(Answer(status=404)) as (backend, _):
        assert await backend.health() is None


async def test_what_was_found_is_kept_for_a_moment() -> None:
    async with proxied(well) as (backend, far):
        for _ in range(5):
            await backend.health()
    assert len(far.seen) == 2


async def test_a_turn_since_then_makes_it_old() -> None:
    answers = [Answer([b"draining"], 503), stream("ok")]

    def script(seen: Seen) -> Answer:
        return answers.pop(0) if answers else well(seen)

    async with proxied(script) as (backend, _):
        assert "draining" in str(await backend.health())
        assert ending(await run(backend)) == Final("ok")
        assert await backend.health() is None


async def test_a_far_end_that_is_ill_says_so() -> None:
    async with proxied(Answer([b"draining"], 503)) as (backend, far):
        told = await backend.health()
    assert told == "Proxy error (503): draining; try again in a moment."
    assert len(far.seen) == 1


async def test_a_key_that_is_not_accepted_is_told() -> None:
    def script(seen: Seen) -> Answer:
        return well(seen) if seen.path == "/healthz" else Answer([b"bad key"], 401)

    async with proxied(script, key=KEY) as (backend, _):
        assert "GATEWAY_PROXY_KEY" in str(await backend.health())


async def test_nobody_there_is_told_and_nothing_is_raised() -> None:
    backend = backend_at(f"http://127.0.0.1:{free_port()}")
    assert str(await backend.health()).startswith("Proxy connection error: nothing answers")
    await backend.close()


async def test_silence_is_told_within_two_seconds() -> None:
    began = time.monotonic()
    async with proxied(Answer([asyncio.Event()], ending="hold")) as (backend, _):
        assert "no answer within 2 s" in str(await backend.health())
    assert time.monotonic() - began < 30


async def test_a_key_that_may_not_be_read_here_is_done_without() -> None:
    def refuse(_: str) -> str | None:
        raise OutsideScope("no")

    async with proxied(well) as (_, far):
        backend = ProxyBackend(a_turn().profile, Settings(), url=far.url, secret=refuse)
        assert await backend.health() is None
        await backend.close()
    assert "authorization" not in far.seen[1].headers
