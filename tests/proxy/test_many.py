"""Connections that are kept from turn to turn, and many conversations at once."""

from __future__ import annotations

import asyncio
import re

from tests.proxy.houses import Pair
from tests.proxy.relay import Relay

_CANARY = re.compile(r"canary-\d+")


async def test_turns_share_a_connection(pair: Pair) -> None:
    await pair.far.open()
    async with Relay(pair.far.url) as relay:
        pair.near.far_url = relay.url
        desk = await pair.near.open()
        for number in range(5):
            assert await desk.ask(f"n{number}") == f"echo: n{number}"
        assert relay.accepted == 1
        assert (await desk.ask("[[status 400]]")).startswith("Proxy error (400)")
        await desk.ask("after a refusal")
        assert relay.accepted == 1
        await pair.near.close()


async def test_fifty_conversations_at_once_do_not_mix(pair: Pair) -> None:
    desk = await pair.open()

    async def talk(number: int) -> list[str]:
        name = f"canary-{number}"
        return [
            await desk.ask(f"{name} {word} [[delay 0.05]]", chat=name) for word in ("one", "two")
        ]

    said = await asyncio.gather(*(talk(number) for number in range(50)))
    for number, (first, second) in enumerate(said):
        assert first == f"echo: canary-{number} one [[delay 0.05]]"
        assert second == f"echo: canary-{number} two [[delay 0.05]]"
    assert pair.model.max_open_streams > 25
    for request in pair.model.requests:
        assert len(set(_CANARY.findall(request.body.decode()))) == 1
    stored = await pair.far.stored()
    assert len(stored) == 50
    for told in stored:
        assert len(told) == 4
        assert len({name for m in told for name in _CANARY.findall(m.text)}) == 1
