"""What running turns say reaches the surface that shows it: in order, apart, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from parley.gateway.live import Live, LiveEvent, TurnEnded, TurnStarted
from parley.protocol import TextDelta, ToolCall, ToolStarted
from tests.builders import a_source


class _Reader:
    """A surface that listens from the start and reads when it is asked to."""

    def __init__(self, live: Live, platform: str = "test") -> None:
        events = live.subscribe(platform)
        self._events = cast("AsyncGenerator[LiveEvent, None]", events)
        self._first: asyncio.Task[LiveEvent] | None = None

    async def begin(self) -> _Reader:
        self._first = asyncio.create_task(_next(self._events))
        await asyncio.sleep(0)
        return self

    async def read(self, count: int) -> list[LiveEvent]:
        found: list[LiveEvent] = []
        async with asyncio.timeout(60):
            if self._first is not None and count:
                found.append(await self._first)
                self._first = None
            while len(found) < count:
                found.append(await _next(self._events))
        return found

    async def close(self) -> None:
        if self._first is not None:
            self._first.cancel()
            await asyncio.wait([self._first])
        async with aclosing(self._events):
            pass


async def _next(events: AsyncIterator[LiveEvent]) -> LiveEvent:
    return await anext(events)


def _say(live: Live, text: str, *, turn: int = 1, platform: str = "test") -> None:
    live.publish(f"lane-{turn}", turn, a_source(platform=platform), TextDelta(text))


def _text(events: list[LiveEvent], turn: int) -> str:
    deltas = (event.event for event in events if event.turn == turn)
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_events_come_in_order_and_are_numbered_upwards() -> None:
    live = Live()
    reader = await _Reader(live).begin()
    live.publish("lane", 1, a_source(), TurnStarted())
    _say(live, "Hel")
    _say(live, "lo")
    live.publish("lane", 1, a_source(), TurnEnded())
    events = await reader.read(4)
    assert [event.event for event in events] == [
        TurnStarted(),
        TextDelta("Hel"),
        TextDelta("lo"),
        TurnEnded(),
    ]
    numbers = [event.number for event in events]
    assert numbers == sorted(set(numbers))
    await reader.close()


async def test_a_surface_hears_its_own_platform_only() -> None:
    live = Live()
    here, there = await _Reader(live, "here").begin(), await _Reader(live, "there").begin()
    _say(live, "for here", platform="here")
    _say(live, "for there", platform="there")
    assert _text(await here.read(1), 1) == "for here"
    assert _text(await there.read(1), 1) == "for there"
    await here.close()
    await there.close()


async def test_two_listeners_of_a_platform_hear_the_same() -> None:
    live = Live()
    readers = [await _Reader(live).begin() for _ in range(2)]
    _say(live, "hello")
    assert [_text(await reader.read(1), 1) for reader in readers] == ["hello", "hello"]
    for reader in readers:
        await reader.close()


async def test_a_slow_listener_gets_fewer_and_longer_pieces_and_all_of_the_text() -> None:
    """Also when many turns speak at once, each between the words of the others."""
    live = Live(buffer=10)
    reader = await _Reader(live).begin()
    for word in range(1000):
        for turn in range(4):
            _say(live, f"{word} ", turn=turn)
    events = await reader.read(10)
    last = asyncio.create_task(reader.read(1))
    await asyncio.sleep(0)
    _say(live, "end", turn=9)
    assert _text(await last, 9) == "end"
    for turn in range(4):
        assert _text(events, turn) == "".join(f"{word} " for word in range(1000))
    numbers = [event.number for event in events]
    assert numbers == sorted(numbers)
    await reader.close()


async def test_text_does_not_run_together_over_another_event_of_its_turn() -> None:
    live = Live(buffer=1)
    reader = await _Reader(live).begin()
    tool = ToolStarted(ToolCall("1", "now"))
    _say(live, "before")
    live.publish("lane-1", 1, a_source(), tool)
    _say(live, "aft")
    _say(live, "er")
    events = await reader.read(3)
    assert [event.event for event in events] == [TextDelta("before"), tool, TextDelta("after")]
    await reader.close()


async def test_nobody_who_left_is_kept() -> None:
    live = Live()
    reader = await _Reader(live).begin()
    await reader.close()
    assert live._subscriptions == {("test", None): []}
    _say(live, "to nobody")
    again = await _Reader(live).begin()
    _say(live, "hello")
    assert _text(await again.read(1), 1) == "hello"
    await again.close()
