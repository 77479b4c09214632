"""Turns that are stopped, lanes that are drained: what ends, and who goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.gateway.lanes import RunningTurn
from parley.protocol import ChatMessage
from parley.storage.contract import LeaseLost, TurnEnd
from parley.storage.sqlite import SqliteStore
from tests.builders import eventually
from tests.gateway.lane_house import Answers, served, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "parley.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(file)
    yield store
    await store.close()


async def test_a_stop_waits_for_nothing(store: SqliteStore) -> None:
    async def work(turn: RunningTurn) -> None:
        turn.said = ["I was ab"]
        await asyncio.Event().wait()

    answers = Answers(work)
    async with served(store, answers) as lanes:
        await write(lanes, "hello")
        await eventually(lambda: answers.running == {"c1"})
        turn = lanes.turn_of("c1")
        assert turn is not None
        stopped = await lanes.stop("c1")
        await eventually(lambda: not answers.running)
        assert stopped.turn == turn.claim.turn
        assert answers.cancelled == ["hello"]
        assert lanes.turn_of("c1") is None
        entries = await store.transcript(turn.claim.session)
        assert [entry.message for entry in entries][1:] == [
            ChatMessage("assistant", "I was ab", note="interrupted")
        ]
        with pytest.raises(LeaseLost):
            await turn.commit(TurnEnd("done"))


async def test_the_next_message_waits_until_every_stopped_turn_has_ended(
    store: SqliteStore,
) -> None:
    """Also when the one in between was stopped before it began."""
    cleaned_up = asyncio.Event()

    async def work(turn: RunningTurn) -> None:
        if turn.claim.messages[0].message.text == "slow to stop":
            try:
                await asyncio.Event().wait()
            finally:
                await cleaned_up.wait()

    answers = Answers(work)
    async with served(store, answers) as lanes:
        await write(lanes, "slow to stop")
        await eventually(lambda: answers.begun == ["slow to stop"])
        await write(lanes, "stopped while it waits")
        first = await lanes.stop("c1")
        await eventually(lambda: _turn(lanes.turn_of("c1")) not in (None, first.turn))
        await write(lanes, "last")
        second = await lanes.stop("c1")
        await eventually(lambda: _turn(lanes.turn_of("c1")) not in (None, second.turn))
        await write(lanes, "elsewhere", chat="c2")
        await eventually(lambda: answers.answered == ["elsewhere"])
        assert answers.begun == ["slow to stop", "elsewhere"]
        cleaned_up.set()
        await eventually(lambda: answers.answered == ["elsewhere", "last"])
    assert answers.together == []


def _turn(running: RunningTurn | None) -> int | None:
    return running.claim.turn if running else None


async def test_a_stale_turn_clears_nothing_of_a_fresher_one(store: SqliteStore) -> None:
    """The first turn lingers after its commit; the second is registered, and stays so."""
    linger, hold = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def handler(turn: RunningTurn) -> None:
        text = turn.claim.messages[0].message.text
        if text == "two":
            await hold.wait()
        await turn.commit(TurnEnd("done"))
        if text == "one":
            await linger.wait()
        ended.append(text)

    async with served(store, handler) as lanes:
        await write(lanes, "one")
        await write(lanes, "two")
        await eventually(lambda: lanes.running == 2)
        fresh = lanes.turn_of("c1")
        linger.set()
        await eventually(lambda: ended == ["one"] and lanes.running == 1)
        assert lanes.turn_of("c1") is fresh
        lanes.cancel("c1", 0)
        assert lanes.turn_of("c1") is fresh
        hold.set()
        await eventually(lambda: ended == ["one", "two"])


async def test_draining_lets_running_turns_finish_and_starts_no_other(
    store: SqliteStore,
) -> None:
    go = asyncio.Event()

    async def work(turn: RunningTurn) -> None:
        await go.wait()

    answers = Answers(work)
    async with served(store, answers) as lanes:
        await write(lanes, "running")
        await write(lanes, "behind")
        await eventually(lambda: answers.begun == ["running"])
        draining = asyncio.create_task(lanes.drain(20))
        await write(lanes, "new", chat="c2")
        go.set()
        assert await draining == 0
        assert answers.answered == ["running"]
    assert answers.begun == ["running"]
    async with served(store, answers, owner="owner-2"):
        await eventually(lambda: sorted(answers.answered) == ["behind", "new", "running"])


async def test_what_does_not_finish_is_set_aside_and_taken_up_by_the_next(
    store: SqliteStore,
) -> None:
    async def work(turn: RunningTurn) -> None:
        await turn.step([ChatMessage("assistant", "a step")])
        await asyncio.Event().wait()

    first = Answers(work)
    async with served(store, first) as lanes:
        await asyncio.gather(*(write(lanes, "hi", chat=chat) for chat in ("a", "b")))
        await eventually(lambda: len(first.running) == 2)
        assert await lanes.drain(0.01) == 2
        assert (await store.health()).running == 0
    second = Answers()
    attempts: list[int] = []

    async def resume(turn: RunningTurn) -> None:
        attempts.append(turn.claim.attempt)

    second.work = resume
    async with served(store, second, owner="owner-2"):
        await eventually(lambda: len(second.answered) == 2)
    assert attempts == [2, 2]
    for chat in ("a", "b"):
        record = await store.session_of(chat)
        assert record is not None
        texts = [entry.message.text for entry in await store.transcript(record.id)]
        assert texts == ["hi", "a step", "re: hi"]


async def test_a_hurried_drain_waits_no_longer(store: SqliteStore) -> None:
    async def work(turn: RunningTurn) -> None:
        await asyncio.Event().wait()

    answers = Answers(work)
    async with served(store, answers) as lanes:
        await write(lanes, "hello")
        await eventually(lambda: len(answers.running) == 1)
        draining = asyncio.create_task(lanes.drain(60))
        lanes.hurry()
        async with asyncio.timeout(60):
            assert await draining == 1


async def test_a_turn_that_crashed_and_waits_is_set_aside_by_a_drain(store: SqliteStore) -> None:
    crashed = asyncio.Event()

    async def work(turn: RunningTurn) -> None:
        if turn.claim.attempt == 4:
            crashed.set()
        raise ZeroDivisionError

    async with served(store, Answers(work)) as lanes:
        await write(lanes, "hello")
        async with asyncio.timeout(60):
            await crashed.wait()
        await lanes.drain(0)
        assert (await store.health()).running == 0
