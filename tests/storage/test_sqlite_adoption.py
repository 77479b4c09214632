"""Renaming the lanes of a file: every row comes back as it was, and nothing to do costs nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.storage.contract import Job, NewSession, StopTurn, TurnEnd
from parley.storage.hands import Question
from parley.storage.sqlite import SqliteStore
from tests.builders import PLATFORM, a_draft, a_message, a_source, say
from tests.storage.conformance.base import a_record, a_work, command, converse, spoken

_LANES = [f"agent:main:test:{rest}" for rest in ("dm:99", "group:g1:alice", "dm:a%3Ab:t1")]
_DEEDS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("say", "converse", "claim", "new", "stop", "work", "job", "request", "question"),
                *("room", "chat"),
            ]
        ),
        st.sampled_from([*_LANES, "c1"]),
    ),
    max_size=25,
)


def _rows(file: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(file)) as db:
        names = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        return {name: sorted(db.execute(f"SELECT * FROM {name}"), key=repr) for name in names}


async def _do(store: SqliteStore, number: int, deed: str, lane: str) -> None:
    match deed:
        case "say":
            await say(store, f"say {number}", chat=lane)
        case "converse":
            await store.stop(lane, drop_queued=True)
            await say(store, f"ask {number}", chat=lane)
            for claim in await store.claim(f"owner-{number}", 9, [PLATFORM]):
                if claim.lane == lane:
                    end = TurnEnd("done", (spoken("answer"),), (a_draft(f"re {number}"),))
                    await store.commit(claim, end)
        case "claim":
            await store.claim(f"owner-{number}", 1, [PLATFORM])
        case "new":
            await command(store, NewSession(), text=f"/new {number}", chat=lane)
        case "stop":
            await command(store, StopTurn(drop_queued=True), text=f"/stop {number}", chat=lane)
        case "work":
            if (record := await store.session_of(lane)) is not None:
                await store.begin_work(a_work(f"w{number}", record))
        case "question":
            if (record := await store.session_of(lane)) is not None:
                name = f"q{number}"
                question = Question(
                    *(name, name, lane, record.id, 1, "test:alice", False, "terminal"),
                    digest="d1",
                    what="it",
                    expires_at=9e9,
                )
                await store.put_question(question)
        case "room":
            if await store.chat_at(lane) is None:
                chat = await store.open_chat("test:alice", key=f"{number}")
                await store.place_chat("test:alice", chat.number, a_source(lane), lane)
        case "chat":
            if (record := await store.session_of(lane)) is not None:
                await store.chat_of_session("test:alice", record.id)
        case "request":
            await store.open_request(a_record(f"{number}", lane=lane))
        case "job":
            await store.schedule(Job(f"j{number}", lane, a_message("by job"), at=1.0 + number))


@settings(max_examples=25, deadline=None)
@given(deeds=_DEEDS)
def test_there_and_back_leaves_every_row_as_it_was(deeds: list[tuple[str, str]]) -> None:
    async def there_and_back(file: Path) -> None:
        store = SqliteStore.open(file)
        for number, (deed, lane) in enumerate(deeds):
            await _do(store, number, deed, lane)
        before = _rows(file)
        there = await store.adopt("coder")
        assert all("agent:main:" not in repr(row) for row in _named(_rows(file)))
        assert await store.adopt("main") == there == _ours(before)
        assert _rows(file) == before
        await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(there_and_back(Path(folder) / "parley.db"))


def _ours(found: dict[str, list[tuple[object, ...]]]) -> int:
    return len([row for row in found["lane"] if str(row[0]).startswith("agent:")])


def _named(found: dict[str, list[tuple[object, ...]]]) -> list[object]:
    """The columns that hold the name of a lane."""
    places = {"lane": 0, "session": 1, "turn": 1, "inbox": 1, "outbox": 1, "job": 1, "request": 3}
    places |= {"question": 2, "speaker": 1, "chat": 4}
    return [row[place] for table, place in places.items() for row in found[table]]


@pytest.mark.parametrize("again", ["coder", "main"])
async def test_a_thousand_lanes_are_one_transaction(tmp_path: Path, again: str) -> None:
    """Whoever looks while it happens sees all of the old names or all of the new ones."""
    store = SqliteStore.open(tmp_path / "parley.db")
    lanes = [f"agent:main:test:dm:{number}" for number in range(1000)]
    await asyncio.gather(*(say(store, "hello", chat=lane) for lane in lanes))
    renaming = asyncio.ensure_future(store.adopt("coder"))
    while not renaming.done():
        listed = await store.sessions(limit=2000)
        assert len({record.lane.split(":")[1] for record in listed}) == 1
    assert await renaming == 1000
    assert await store.adopt(again) == (0 if again == "coder" else 1000)
    await store.close()


async def test_nothing_to_do_reads_no_more_in_an_old_file(tmp_path: Path) -> None:
    """Counted in steps of the database's own machine, not in time."""
    store = SqliteStore.open(tmp_path / "parley.db")

    async def steps() -> int:
        counted = 0

        def count() -> None:
            nonlocal counted
            counted += 1

        await store._engine.write(lambda db: db.set_progress_handler(count, 1))
        assert await store.adopt("main") == 0
        await store._engine.write(lambda db: db.set_progress_handler(None, 0))
        return counted

    await converse(store, "hello", "hi", chat=_LANES[0])
    young = await steps()
    for number in range(50):
        lane = f"agent:main:test:dm:{number}"
        await converse(store, "hello", f"hi {number}", chat=lane)
        await store.schedule(Job(f"j{number}", lane, a_message("x"), at=time.time() + 99))
    assert await steps() <= young + 5
    await store.close()
