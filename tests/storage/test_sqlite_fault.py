"""Why nothing can be written just now is part of a store's health, and so is that it can again."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from parley.storage.contract import StoreUnavailable
from parley.storage.people import Arrival
from parley.storage.sqlite import SqliteStore
from tests.builders import PLATFORM, a_message, say
from tests.storage.conformance.base import OWNER

BIG = "x" * 200_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "parley.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(file)
    await say(store, "hello")
    yield store
    await store.close()


@contextmanager
def full(file: Path, *, room: int = 0) -> Iterator[None]:
    """This process may write no byte past the length of the log and this room."""
    log = file.with_name(f"{file.name}-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_store_that_can_write_has_no_fault(store: SqliteStore) -> None:
    assert (await store.health()).fault is None


async def test_a_full_disk_is_told_until_it_is_mended(store: SqliteStore, file: Path) -> None:
    with full(file):
        with pytest.raises(StoreUnavailable):
            await say(store, BIG)
        for _ in range(3):
            health = await store.health()
            assert health.fault is not None
            assert health.fault.startswith("The database cannot be used: ")
            assert health.queued == 1
    assert (await store.health()).fault is None


async def test_on_a_full_disk_neither_messages_nor_marks_stay(
    store: SqliteStore, file: Path
) -> None:
    await store.put_marks({"since": "s1"})
    arrivals = [Arrival("c2", text[:9], a_message(text, chat="c2")) for text in ("small", BIG)]
    with full(file, room=len(BIG) // 2):
        with pytest.raises(StoreUnavailable):
            await store.submit_all(arrivals, {"since": "s2"})
        assert await store.mark("since") == "s1"
        assert (await store.health()).queued == 1
    receipts = await store.submit_all(arrivals, {"since": "s2"})
    assert [receipt.state for receipt in receipts] == ["queued", "queued"]
    assert await store.mark("since") == "s2"


async def test_a_write_that_works_is_the_end_of_a_fault(store: SqliteStore, file: Path) -> None:
    with full(file), pytest.raises(StoreUnavailable):
        await say(store, BIG)
    assert store._engine.fault is not None
    await say(store, "more")
    assert store._engine.fault is None


async def test_a_write_that_had_nothing_to_write_says_nothing_of_the_disk(
    store: SqliteStore, file: Path
) -> None:
    with full(file):
        with pytest.raises(StoreUnavailable):
            await say(store, BIG)
        assert await store.claim(OWNER, 1, ["elsewhere"]) == []
        assert await store.tick() is None
        assert store._engine.fault is not None


async def test_a_file_that_was_removed_is_told(store: SqliteStore, file: Path) -> None:
    file.rename(file.with_name("elsewhere.db"))
    with pytest.raises(StoreUnavailable):
        await say(store, "lost")
    assert "was removed or replaced" in ((await store.health()).fault or "")
    file.with_name("elsewhere.db").rename(file)
    assert (await store.health()).fault is None


async def test_a_file_that_someone_else_holds_is_told_without_waiting_for_them(
    store: SqliteStore, file: Path
) -> None:
    await store._engine.write(lambda db: db.execute("PRAGMA busy_timeout = 10"))
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            await say(store, "late")
        assert "locked" in ((await store.health()).fault or "")
        other.execute("ROLLBACK")
    assert (await store.health()).fault is None


async def test_a_fault_of_ours_is_none_of_the_disk(store: SqliteStore) -> None:
    with pytest.raises(ZeroDivisionError):
        await store._engine.write(lambda db: 1 // 0)
    assert (await store.health()).fault is None
    assert len(await store.claim(OWNER, 1, [PLATFORM])) == 1
