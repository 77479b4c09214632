"""A disk that is full for a while delays turns and replies, and loses none."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from parley.gateway.lanes import Lanes, RunningTurn
from parley.protocol import ChatMessage
from parley.storage.contract import StoreError
from parley.storage.sqlite import SqliteStore
from tests.builders import PLATFORM, a_message, eventually, say
from tests.gateway import lane_house, post_house
from tests.gateway.full_disk import Full, by_the_database, by_the_kernel
from tests.gateway.lane_house import Answers, write

BIG = "x" * 200_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "parley.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(file)
    yield store
    await store.close()


@pytest.mark.parametrize("full", [by_the_kernel, by_the_database])
async def test_a_full_disk_delays_turns_and_loses_none(
    store: SqliteStore, file: Path, full: Full
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(turn: RunningTurn) -> None:
        if turn.claim.messages[0].message.text == "first":
            begun.set()
            await go_on.wait()
            await turn.step([ChatMessage("assistant", BIG)])

    answers = Answers(work)
    async with lane_house.served(store, answers) as lanes:
        await write(lanes, "first")
        await write(lanes, "behind")
        async with asyncio.timeout(60):
            await begun.wait()
        async with full(store, file):
            go_on.set()
            for number in range(5):
                with pytest.raises(StoreError):
                    await store.submit("c9", f"big-{number}", a_message(BIG, chat="c9"))
            assert answers.answered == []
        await eventually(lambda: answers.answered == ["first", "behind"])
    record = await store.session_of("c1")
    assert record is not None
    texts = [entry.message.text for entry in await store.transcript(record.id)]
    assert texts == ["first", BIG, "re: first", "behind", "re: behind"]
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


async def test_what_waits_starts_and_goes_by_itself_when_there_is_room_again(
    store: SqliteStore, file: Path
) -> None:
    """Neither the claim of a turn nor the lease of a reply could be written."""
    answers, surface = Answers(), post_house.Surface()
    for number in range(20):
        await post_house.reply(store, str(number), chat=f"c{number}")
    await say(store, "hello")
    async with AsyncExitStack() as running:
        async with by_the_kernel(store, file):
            await running.enter_async_context(post_house.served(store, surface))
            lanes = Lanes(store, owner="owner-1", platforms=[PLATFORM], concurrency=5)
            serving = asyncio.create_task(lanes.serve(answers))
            lanes.look_again()
            for number in range(5):
                with pytest.raises(StoreError):
                    await say(store, f"refused {number}")
            assert (surface.tried, answers.begun) == ([], [])
            assert not serving.done()
        await eventually(lambda: len(surface.sent) == 20 and answers.answered == ["hello"])
        await post_house.settled(store)
        serving.cancel()
        await asyncio.wait([serving])
    assert sorted(surface.sent, key=int) == [str(number) for number in range(20)]
