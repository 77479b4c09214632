"""Lanes on a real database: order, fairness, bounds, crashes, time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from parley.gateway.lanes import RunningTurn
from parley.storage.contract import Job
from parley.storage.sqlite import SqliteStore
from tests.builders import a_message, eventually
from tests.gateway.lane_house import Answers, served, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "parley.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(file)
    yield store
    await store.close()


async def test_many_sessions_run_side_by_side_each_in_order(store: SqliteStore) -> None:
    async def work(turn: RunningTurn) -> None:
        await asyncio.sleep(0.01)

    answers = Answers(work)
    texts = [f"{number}:{chat}" for number in range(3) for chat in range(200)]
    async with served(store, answers, concurrency=500) as lanes:
        await asyncio.gather(*(write(lanes, text, chat=text.split(":")[1]) for text in texts))
        await eventually(lambda: len(answers.answered) == 600)
    assert sorted(answers.answered) == sorted(texts)
    assert answers.together == []
    for chat in range(200):
        mine = [text for text in answers.begun if text.endswith(f":{chat}")]
        assert mine == [f"{number}:{chat}" for number in range(3)]


async def test_all_that_may_run_at_once_do(store: SqliteStore) -> None:
    everyone = asyncio.Barrier(200)

    async def work(turn: RunningTurn) -> None:
        await everyone.wait()

    answers = Answers(work)
    async with served(store, answers, concurrency=200) as lanes:
        await asyncio.gather(*(write(lanes, "hi", chat=str(chat)) for chat in range(200)))
        await eventually(lambda: len(answers.answered) == 200)


async def test_no_more_run_than_allowed(store: SqliteStore) -> None:
    async def work(turn: RunningTurn) -> None:
        await asyncio.sleep(0.005)

    answers = Answers(work)
    async with served(store, answers, concurrency=7) as lanes:
        await asyncio.gather(*(write(lanes, f"{c}", chat=str(c)) for c in range(100)))
        await eventually(lambda: len(answers.answered) == 100)
    assert answers.most_at_once == 7


async def test_a_busy_session_lets_the_others_have_their_turn(store: SqliteStore) -> None:
    answers = Answers()
    for number in range(50):
        await store.submit("busy", f"busy-{number}", a_message(f"busy {number}", chat="busy"))
    for chat in ("a", "b", "c"):
        await store.submit(chat, chat, a_message(chat, chat=chat))
    async with served(store, answers, concurrency=1):
        await eventually(lambda: len(answers.answered) == 53)
    assert answers.answered[:4] == ["busy 0", "a", "b", "c"]


async def test_a_crashing_turn_is_tried_again_more_slowly_and_harms_no_other(
    store: SqliteStore,
) -> None:
    tried: list[float] = []

    async def work(turn: RunningTurn) -> None:
        if turn.claim.messages[0].message.text == "broken":
            tried.append(time.monotonic())
            assert turn.claim.attempt == len(tried)
            if len(tried) < 4:
                raise ZeroDivisionError

    answers = Answers(work)
    async with served(store, answers, concurrency=2) as lanes:
        await write(lanes, "broken", chat="broken")
        await write(lanes, "behind", chat="broken")
        for number in range(10):
            await write(lanes, f"fine {number}", chat="fine")
        await eventually(lambda: len(answers.answered) == 12)
    assert [text for text in answers.answered if text[0] == "b"] == ["broken", "behind"]
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses == sorted(pauses)
    assert len(pauses) == 3


async def test_a_planned_message_starts_on_time(store: SqliteStore) -> None:
    at: dict[str, float] = {}

    async def work(turn: RunningTurn) -> None:
        at[turn.claim.messages[0].message.text] = time.time()

    answers = Answers(work)
    async with served(store, answers) as lanes:
        await write(lanes, "first")
        await eventually(lambda: answers.answered == ["first"])
        due = time.time() + 0.2
        await write(lanes, "later", not_before=due)
        await write(lanes, "now")
        await eventually(lambda: answers.answered == ["first", "now", "later"])
        assert due <= at["later"] < due + 2


async def test_a_job_starts_on_time_and_not_when_it_was_taken_back(store: SqliteStore) -> None:
    at: list[float] = []

    async def work(turn: RunningTurn) -> None:
        at.append(time.time())

    answers = Answers(work)
    async with served(store, answers) as lanes:
        await write(lanes, "first")
        await eventually(lambda: answers.answered == ["first"])
        due = time.time() + 0.2
        await lanes.schedule(Job("never", "c1", a_message("never"), at=due))
        await lanes.schedule(Job("job", "c1", a_message("by itself"), at=due))
        assert await lanes.unschedule("never")
        await eventually(lambda: answers.answered == ["first", "by itself"])
        assert due <= at[1] < due + 2
    assert (await store.health()).queued == 0


async def test_a_message_is_read_by_a_running_turn_when_it_asks(store: SqliteStore) -> None:
    more = asyncio.Event()
    seen: list[str] = []

    async def work(turn: RunningTurn) -> None:
        assert await turn.absorb() == ()
        await more.wait()
        assert await turn.peek() == 1
        seen.extend(taken.message.text for taken in await turn.absorb())
        await turn.check()
        seen.extend(taken.message.text for taken in turn.messages)

    answers = Answers(work)
    async with served(store, answers) as lanes:
        await write(lanes, "one")
        await eventually(lambda: answers.begun == ["one"])
        await write(lanes, "two")
        more.set()
        await eventually(lambda: answers.answered == ["one"])
    assert seen == ["two", "one", "two"]
    assert (await store.health()).queued == 0
