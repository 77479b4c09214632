"""The index of words in SQLite: no query is anything but words, and none is needed to find them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parley.storage.contract import StoreUnavailable
from parley.storage.sqlite import SqliteStore, search
from parley.storage.sqlite.engine import connect
from parley.storage.sqlite.migrate import migrate
from parley.storage.sqlite.queries import SQL
from tests.storage.conformance.base import converse, current

_TEXT = 'the quick "brown" fox: text^2 (AND) NOT jumps* NEAR/3 -over {lazy} dögs'
_SIGNS = st.text(st.sampled_from("ab \"'*^():{}+-,.\\%_\0\n") | st.characters(), max_size=40)
_SYNTAX = st.lists(
    st.sampled_from(["AND", "OR", "NOT", "NEAR(", ")", '"', "*", "text:", "^", "-", "fox", "+"])
).map(" ".join)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    file = tmp_path_factory.mktemp("search") / "parley.db"

    async def talk() -> None:
        store = SqliteStore.open(file)
        await converse(store, _TEXT, "something else altogether")
        await store.search_entries("fox")
        await store.close()

    asyncio.run(talk())
    with closing(connect(file)) as connection:
        yield connection


@pytest.fixture
async def without_fts5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SqliteStore]:
    """A store on an SQLite that was built without it."""
    monkeypatch.setitem(SQL, "search_make", "CREATE VIRTUAL TABLE said USING fts5_not_there(text)")
    store = SqliteStore.open(tmp_path / "parley.db")
    yield store
    await store.close()


def _find(db: sqlite3.Connection, query: str) -> list[str]:
    found = search.find(db, query, person=None, lane=None, limit=5)
    return [entry.excerpt for entry in found]


@settings(max_examples=300, deadline=None)
@given(query=_SIGNS | _SYNTAX)
@example(query='fo"x')
@example(query='fox" OR "else')
def test_whatever_is_asked_is_only_words(db: sqlite3.Connection, query: str) -> None:
    for excerpt in _find(db, query):
        assert excerpt in (_TEXT, "something else altogether")


@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.sampled_from(_TEXT.split()), min_size=1, max_size=9))
def test_a_text_is_found_by_any_of_its_own_words(db: sqlite3.Connection, words: list[str]) -> None:
    assert _find(db, " ".join(words)) == [_TEXT]
    assert _find(db, " ".join(words) + " missing") == []


@settings(max_examples=15, deadline=None)
@given(texts=st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=4))
def test_any_text_can_be_taken_in(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    file = tmp_path_factory.mktemp("texts") / "parley.db"
    migrate(file)

    async def talk() -> None:
        store = SqliteStore.open(file)
        for number, text in enumerate(texts):
            await converse(store, f"{number} {text}", f"needle{number}")
        for number in range(len(texts)):
            assert len(await store.search_entries(f"needle{number}")) == 1
        await store.close()

    asyncio.run(talk())


async def test_words_are_found_without_an_index(without_fts5: SqliteStore) -> None:
    store = without_fts5
    await converse(store, "where is the Blue key? 100%", "under the " + "green " * 200 + "mat")
    await converse(store, "elsewhere", "a blue_key", chat="c2")
    assert not await store.index_entries()
    for query, count in (("key", 2), ("BLUE where", 1), ("mat", 1), ("blue mat", 0), ("0%", 1)):
        assert len(await store.search_entries(query)) == count, query
    [found] = await store.search_entries("mat")
    assert "mat" in found.excerpt and len(found.excerpt) <= 300
    assert len(await store.search_entries("key", person="test:user-of-c1")) == 1
    assert len(await store.search_entries("key", limit=1)) == 1
    assert await store.delete_session((await current(store)).id)
    assert await store.search_entries("mat") == []


async def test_an_index_is_made_when_this_sqlite_can_after_all(
    without_fts5: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await converse(without_fts5, "where is the key?", "here")
    assert len(await without_fts5.search_entries("key")) == 1
    monkeypatch.undo()
    assert len(await without_fts5.search_entries("key")) == 1
    made = await without_fts5._engine.read(lambda db: db.execute(SQL["search_is_made"]).fetchone())
    assert made is not None


async def test_what_was_taken_in_is_found_while_nothing_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "parley.db"
    store = SqliteStore.open(file)
    await converse(store, "where is the key?", "here")
    assert len(await store.search_entries("key")) == 1
    await converse(store, "another key", "there")
    await store._engine.write(lambda db: db.execute("PRAGMA query_only = ON"))
    with pytest.raises(StoreUnavailable):
        await store.put_person_setting("p", "n", "v")
    assert len(await store.search_entries("key")) == 1
    await store.close()
    again = SqliteStore.open(file)
    assert len(await again.search_entries("key")) == 2
    await again.close()
