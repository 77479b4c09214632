"""Replies on their way out: order, retries, parking, doubt; no surface delays another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from parley.gateway.delivery import NotSent, Rejected, Unreachable
from parley.gateway.live import Live
from parley.protocol import SessionSource, TextDelta
from parley.storage.contract import Delivery
from parley.storage.sqlite import SqliteStore
from tests.builders import a_source, eventually
from tests.gateway.post_house import Behaviour, Surface, reply, served, settled


def _fails(times: int, error: Exception, *, text: str = "one") -> Behaviour:
    """The named reply fails so many times, then goes."""
    left = [times]

    async def behave(delivery: Delivery) -> None:
        if delivery.text == text and left[0] > 0:
            left[0] -= 1
            raise error

    return behave


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "parley.db")
    yield store
    await store.close()


async def test_replies_of_a_conversation_go_in_order(store: SqliteStore) -> None:
    async def slow_at_first(delivery: Delivery) -> None:
        await asyncio.sleep(0.05 if delivery.text == "0" else 0)

    surface = Surface(behave=slow_at_first)
    async with served(store, surface) as deliveries:
        for number in range(0, 6, 2):
            await reply(store, str(number), str(number + 1))
            deliveries.hand_over([], "test")
        await eventually(lambda: len(surface.sent) == 6)
        await settled(store)
    assert surface.sent == ["0", "1", "2", "3", "4", "5"]
    assert len(surface.tried) == 6


async def test_a_conversation_does_not_wait_for_another(store: SqliteStore) -> None:
    never = asyncio.Event()

    async def stuck_in_c1(delivery: Delivery) -> None:
        if delivery.lane == "c1":
            await never.wait()

    surface = Surface(behave=stuck_in_c1)
    async with served(store, surface) as deliveries:
        await reply(store, "stuck", "behind")
        for number in range(5):
            await reply(store, str(number), chat="c2")
        deliveries.hand_over([], "test")
        await eventually(lambda: len(surface.sent) == 5)
        assert surface.sent == ["0", "1", "2", "3", "4"]
        assert [delivery.text for delivery in surface.tried if delivery.lane == "c1"] == ["stuck"]


async def test_a_slow_surface_does_not_delay_another(store: SqliteStore) -> None:
    never = asyncio.Event()

    async def stuck(delivery: Delivery) -> None:
        await never.wait()

    slow, quick = Surface("slow", behave=stuck), Surface("quick")
    async with served(store, slow, quick) as deliveries:
        for number in range(50):
            await reply(store, f"slow {number}", chat=f"s{number}", platform="slow")
        await reply(store, "quick", chat="q", platform="quick")
        deliveries.hand_over([], "slow")
        deliveries.hand_over([], "quick")
        await eventually(lambda: quick.sent == ["quick"])
        assert slow.sent == []


async def test_what_waits_from_before_the_start_is_sent(store: SqliteStore) -> None:
    for number in range(220):
        await reply(store, str(number), chat=f"c{number}")
    surface = Surface()
    async with served(store, surface):
        await eventually(lambda: len(surface.sent) == 220)
        await settled(store)
    assert sorted(surface.sent, key=int) == [str(number) for number in range(220)]


async def test_a_handed_over_reply_is_sent_once(store: SqliteStore) -> None:
    surface = Surface(knows_repeats=True)
    async with served(store, surface) as deliveries:
        assert deliveries.knows_repeats(SessionSource("test"))
        assert not deliveries.knows_repeats(SessionSource("test", account="other"))
        assert not deliveries.knows_repeats(SessionSource("elsewhere"))
        leased = await reply(store, "one", "two", handover=True)
        assert len(leased) == 1
        deliveries.hand_over(leased, "test")
        await eventually(lambda: surface.sent == ["one", "two"])
        await settled(store)
        await deliveries.flush(5)
    assert len(surface.tried) == 2


async def test_what_was_not_sent_is_tried_again_more_and_more_slowly(store: SqliteStore) -> None:
    surface = Surface(behave=_fails(2, NotSent("busy")))
    await reply(store, "one", "two")
    async with served(store, surface):
        await eventually(lambda: surface.sent == ["one", "two"])
        await settled(store)
    assert [delivery.attempts for delivery in surface.tried] == [1, 2, 3, 1]
    first, second = _pauses(surface)[:2]
    assert first >= 0.45
    assert second >= 0.9


def _pauses(surface: Surface) -> list[float]:
    return [later - earlier for earlier, later in pairwise(surface.at)]


async def test_a_surface_may_say_when_to_try_again(store: SqliteStore) -> None:
    surface = Surface(behave=_fails(1, NotSent("slow down", after=0.2)))
    await reply(store, "one")
    async with served(store, surface):
        await eventually(lambda: surface.sent == ["one"])
    assert 0.15 < _pauses(surface)[0] < 5


async def test_an_unreachable_chat_is_waited_for(store: SqliteStore) -> None:
    surface = Surface(behave=_fails(1, Unreachable("away")))
    await reply(store, "one", "two")
    async with served(store, surface) as deliveries:
        await eventually(lambda: len(surface.tried) == 1)
        await deliveries.flush(10)
        await reply(store, "elsewhere", chat="c2")
        deliveries.hand_over([], "test")
        await eventually(lambda: surface.sent == ["elsewhere"])
        await deliveries.back("nobody", "test")
        assert (await store.health()).undelivered == 2
        await deliveries.back("c1", "test")
        await eventually(lambda: surface.sent == ["elsewhere", "one", "two"])


async def test_a_chat_that_comes_back_while_a_send_fails_is_not_forgotten(
    store: SqliteStore,
) -> None:
    failing, came_back = asyncio.Event(), asyncio.Event()

    async def behave(delivery: Delivery) -> None:
        if not came_back.is_set():
            failing.set()
            await came_back.wait()
            raise Unreachable("was away")

    surface = Surface(behave=behave)
    await reply(store, "one")
    async with served(store, surface) as deliveries:
        async with asyncio.timeout(60):
            await failing.wait()
        await deliveries.back("c1", "test")
        came_back.set()
        await eventually(lambda: surface.sent == ["one"])


async def test_a_rejected_reply_is_given_up_and_the_next_goes(store: SqliteStore) -> None:
    surface = Surface(behave=_fails(9, Rejected("too long")))
    await reply(store, "one", "two")
    async with served(store, surface):
        await eventually(lambda: surface.sent == ["two"])
        await settled(store)
    assert len(surface.tried) == 2
    assert [delivery.text for delivery in (await store.health()).dead] == ["one"]


async def test_a_send_that_broke_off_is_repeated_where_repeats_are_known(
    store: SqliteStore,
) -> None:
    surface = Surface(knows_repeats=True, behave=_fails(1, ZeroDivisionError()))
    await reply(store, "one", "two")
    async with served(store, surface):
        await eventually(lambda: surface.sent == ["one", "two"])
    assert surface.tried[0].dedupe == surface.tried[1].dedupe


async def test_a_send_that_broke_off_is_in_doubt_elsewhere(store: SqliteStore) -> None:
    surface = Surface(behave=_fails(1, ZeroDivisionError()))
    await reply(store, "one", "two")
    async with served(store, surface):
        await eventually(lambda: surface.sent == ["two"])
        await settled(store)
    assert len(surface.tried) == 2
    assert [delivery.text for delivery in (await store.health()).unsure] == ["one"]


async def test_a_broken_preview_harms_nothing(store: SqliteStore) -> None:
    live = Live()
    surface = Surface()
    async with served(store, surface, live=live) as deliveries:
        await eventually(lambda: bool(live._subscriptions.get(("test", None))))
        live.publish("c1", 1, a_source(), TextDelta("break"))
        live.publish("c1", 1, a_source(), TextDelta("more"))
        await eventually(lambda: len(surface.shown) == 2)
        await reply(store, "one")
        deliveries.hand_over([], "test")
        await eventually(lambda: surface.sent == ["one"])
