"""The writer and the reader of one file: order, shared commits, faults told as what they are."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from parley.storage.contract import StoreClosed, StoreError, StoreUnavailable
from parley.storage.sqlite.engine import Engine


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = Engine(tmp_path / "some.db")
    await engine.write(lambda db: db.execute("CREATE TABLE word (text TEXT UNIQUE)"))
    yield engine
    await engine.close()


def _add(db: sqlite3.Connection, text: str) -> str:
    db.execute("INSERT INTO word VALUES (?)", (text,))
    return text


def _all(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT text FROM word ORDER BY rowid")]


async def test_writes_happen_in_the_order_they_were_asked_for(engine: Engine) -> None:
    texts = [str(number) for number in range(1000)]
    futures = [engine.write(partial(_add, text=text)) for text in texts]
    assert await asyncio.gather(*futures) == texts
    assert await engine.read(_all) == texts


async def test_a_write_is_seen_by_a_read_once_it_returned(engine: Engine) -> None:
    for number in range(50):
        await engine.write(partial(_add, text=str(number)))
        assert len(await engine.read(_all)) == number + 1


async def test_a_fault_of_ours_is_raised_as_it_is_and_undoes_its_own_write_only(
    engine: Engine,
) -> None:
    def half(db: sqlite3.Connection) -> None:
        _add(db, "half")
        raise ZeroDivisionError

    before = engine.write(lambda db: _add(db, "before"))
    broken = engine.write(half)
    twice = engine.write(lambda db: _add(db, "before"))
    after = engine.write(lambda db: _add(db, "after"))
    assert (await before, await after) == ("before", "after")
    with pytest.raises(ZeroDivisionError):
        await broken
    with pytest.raises(sqlite3.IntegrityError):
        await twice
    assert await engine.read(_all) == ["before", "after"]


async def test_a_fault_of_the_file_is_a_store_error(engine: Engine) -> None:
    with pytest.raises(StoreError):
        await engine.write(lambda db: db.execute("SELECT * FROM nowhere"))
    with pytest.raises(StoreError):
        await engine.read(lambda db: db.execute("SELECT * FROM nowhere"))
    assert await engine.write(lambda db: _add(db, "fine")) == "fine"


async def test_a_reader_cannot_write(engine: Engine) -> None:
    with pytest.raises(StoreError):
        await engine.read(lambda db: _add(db, "no"))
    assert await engine.read(_all) == []


async def test_a_caller_who_left_does_not_disturb_the_others(engine: Engine) -> None:
    gone = engine.write(lambda db: _add(db, "gone"))
    stays = engine.write(lambda db: _add(db, "stays"))
    gone.cancel()
    assert await stays == "stays"


async def test_closing_waits_for_what_was_asked(engine: Engine) -> None:
    futures = [engine.write(partial(_add, text=str(n))) for n in range(500)]
    await engine.close()
    assert len(await asyncio.gather(*futures)) == 500
    with pytest.raises(StoreClosed):
        engine.write(_all)
    with pytest.raises(StoreClosed):
        engine.read(_all)


async def test_a_file_another_process_holds_is_waited_for(engine: Engine) -> None:
    """The lock is held for a moment only: the write is late, not lost."""
    path = await engine.read(lambda db: str(db.execute("PRAGMA database_list").fetchone()[2]))
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    late = engine.write(lambda db: _add(db, "late"))
    done, _ = await asyncio.wait([late], timeout=0.1)
    assert not done
    other.execute("ROLLBACK")
    other.close()
    assert await late == "late"


async def test_nothing_is_written_into_a_file_that_was_removed(
    engine: Engine, tmp_path: Path
) -> None:
    await engine.write(partial(_add, text="before"))
    (tmp_path / "some.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(StoreUnavailable, match="was removed or replaced"):
        await engine.write(partial(_add, text="lost"))
    (tmp_path / "elsewhere.db").rename(tmp_path / "some.db")
    await engine.write(partial(_add, text="after"))
    assert await engine.read(_all) == ["before", "after"]


async def test_a_file_that_was_replaced_is_not_read_for_the_one_that_is_written(
    engine: Engine, tmp_path: Path
) -> None:
    """The reader opens it for the first read, which may be long after the writer did."""
    other = Engine(tmp_path / "other.db")
    await other.write(lambda db: db.execute("CREATE TABLE word (text TEXT UNIQUE)"))
    await other.write(partial(_add, text="somebody else's"))
    await other.close()
    (tmp_path / "some.db").rename(tmp_path / "elsewhere.db")
    (tmp_path / "other.db").rename(tmp_path / "some.db")
    with pytest.raises(StoreUnavailable, match="was removed or replaced"):
        await engine.read(_all)
    (tmp_path / "elsewhere.db").rename(tmp_path / "some.db")
    assert await engine.read(_all) == []


async def test_what_was_never_asked_of_ends_all_the_same(tmp_path: Path) -> None:
    before = threading.active_count()
    engine = Engine(tmp_path / "some.db")
    assert threading.active_count() == before
    await engine.close()
    with pytest.raises(StoreClosed):
        engine.write(_all)


async def test_a_disk_that_fills_up_within_a_group_is_a_passing_fault_for_all_of_it(
    engine: Engine,
) -> None:
    await engine.write(lambda db: db.execute("PRAGMA max_page_count = 4").fetchone())
    writes = [engine.write(partial(_add, text=text)) for text in ("small", "x" * 100_000, "last")]
    told = await asyncio.gather(*writes, return_exceptions=True)
    assert {type(outcome) for outcome in told} == {StoreUnavailable}
    assert "disk is full" in str(told[0])
    await engine.write(lambda db: db.execute("PRAGMA max_page_count = 100000").fetchone())
    await engine.write(partial(_add, text="small"))
    assert await engine.read(_all) == ["small"]


async def test_a_long_search_keeps_no_reader_waiting(engine: Engine) -> None:
    over = threading.Event()
    search = engine.search(lambda db: over.wait(10))
    try:
        async with asyncio.timeout(60):
            assert await engine.read(lambda db: db.execute("SELECT 1").fetchone()[0]) == 1
        assert not search.done()
    finally:
        over.set()
    assert await search
