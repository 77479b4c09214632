"""Nobody waits for housekeeping: neither who writes meanwhile, nor who stops the gateway."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

import pytest

from tests.gateway.memory_house import PEOPLE, MemoryHouse, memory_house
from tests.waiting import until

_ANN, _BOB, *_ = PEOPLE
_ASKED, _LEFT = ("housekeeping", "asked"), ("housekeeping", "left")
_LONG = 30.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[MemoryHouse]:
    async with memory_house(tmp_path / "home") as house:
        await house.start()
        yield house


async def _until_thinking(house: MemoryHouse) -> None:
    """The model is asked what is worth remembering, and has not answered."""
    over = (("housekeeping", "told"), _LEFT)
    events = house.model.events
    await until(lambda: events.count(_ASKED) > sum(map(events.count, over)))


async def test_an_answer_comes_as_quickly_while_its_conversation_is_tended(
    house: MemoryHouse,
) -> None:
    house.model.thinks = _LONG
    await house.ask(_ANN)
    meanwhile: list[float] = []
    for _ in range(3):
        await _until_thinking(house)
        since = len(house.model.events)
        meanwhile.append(await house.ask(_ANN, seconds=_LONG / 2))
        happened = house.model.events[since:]
        assert happened.index(_LEFT) < happened.index(("turn", "told"))
    assert median(meanwhile) < _LONG / 4
    house.model.thinks = 0.0
    await house.until_quiet()
    assert len(house.read("SELECT 1 FROM fact WHERE state = 'current'")) == len(house.planted)


async def test_an_answer_comes_as_quickly_while_another_conversation_is_tended(
    house: MemoryHouse,
) -> None:
    await house.ask(_ANN)
    await house.until_quiet()
    house.model.thinks = _LONG
    await house.ask(_BOB)
    await _until_thinking(house)
    meanwhile = [await house.ask(_ANN, seconds=_LONG / 2) for _ in range(3)]
    assert house.model.left == [], "what was made of Bob's words was broken off"
    assert median(meanwhile) < _LONG / 4


async def test_a_stop_breaks_off_what_is_tended_and_the_next_start_takes_it_up(
    house: MemoryHouse,
) -> None:
    house.model.thinks = _LONG
    await house.ask(_ANN)
    await house.ask(_BOB)
    await _until_thinking(house)
    began = time.monotonic()
    assert await house.gateway.stop() == 0
    assert time.monotonic() - began < _LONG
    assert house.read("SELECT 1 FROM fact") == []
    assert "Traceback" not in house.gateway.output

    house.model.thinks = 0.0
    await house.start()
    await house.until_quiet()
    facts = [text for (text,) in house.read("SELECT text FROM fact ORDER BY text")]
    assert facts == sorted(words.fact for _, words in house.planted.values())
    assert await house.gateway.stop() == 0
