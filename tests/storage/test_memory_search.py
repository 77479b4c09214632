"""Facts are found by their words, within the places that are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.storage.memory import PROFILE, Edit, NewFact
from parley.storage.sqlite import SqliteStore, fact_search
from parley.storage.sqlite.engine import connect
from parley.storage.sqlite.migrate import migrate
from parley.storage.sqlite.queries import SQL
from tests.storage.tending import ALICE, BOB, add, fact


@pytest.fixture(params=["index", "plain"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With an index of words, and on an SQLite that was built without it."""
    if request.param == "plain":
        cannot = "CREATE VIRTUAL TABLE fact_words USING fts5_not_there(text)"
        monkeypatch.setitem(SQL, "fact_words_make", cannot)
    return str(request.param)


async def _found(store: SqliteStore, query: str, *places: str, **asked: str | int) -> list[str]:
    found = await store.search_facts(query, places or (ALICE,), **asked)  # type: ignore[arg-type]
    return [fact.text for fact in found]


async def test_facts_with_all_words_come_first(store: SqliteStore, engine: str) -> None:
    await add(store, "Green tea is what they like", "Likes cake", "Tea for two", "Has a cat")
    assert await _found(store, "green tea") == ["Green tea is what they like", "Tea for two"]
    assert await _found(store, "GREEN") == ["Green tea is what they like"]
    assert await _found(store, "gre cak", limit=9) == ["Likes cake", "Green tea is what they like"]
    assert await _found(store, "tea", limit=1) != []
    assert await _found(store, "ea") == []
    assert await _found(store, "nothing of it") == []
    assert await _found(store, "  ?! ") == []
    assert await _found(store, "tea", limit=0) == []


async def test_only_those_places_are_looked_in(store: SqliteStore, engine: str) -> None:
    await add(store, NewFact("Alice likes tea", person="test:alice"), "Tea is common")
    await add(store, "Bob likes tea", place=BOB)
    await add(store, "Tea is served", place=PROFILE)
    assert await _found(store, "tea", BOB) == ["Bob likes tea"]
    assert set(await _found(store, "tea", BOB, PROFILE, BOB)) == {"Bob likes tea", "Tea is served"}
    assert await _found(store, "tea", ALICE, person="test:alice") == ["Alice likes tea"]
    assert await store.search_facts("tea", []) == []


async def test_the_index_follows_what_is_current(store: SqliteStore, engine: str) -> None:
    await add(store, "Likes tea", "Has a cat", "Lives in Berlin", "Plays chess")
    assert await _found(store, "tea") == ["Likes tea"]
    tea, cat, berlin, chess = await store.facts([ALICE])
    edit = Edit(
        adds=(NewFact("Lives in Paris", replaces=(berlin.id,)),),
        changes={tea.id: NewFact("Likes coffee")},
        removes=(cat.id,),
    )
    commit = await store.remember(ALICE, edit, by="owner", origin="hand")
    for gone in ("tea", "cat", "berlin"):
        assert await _found(store, gone) == []
    assert await _found(store, "paris coffee") != []
    await store.forget([chess.id], by="owner")
    assert await _found(store, "chess") == []
    assert await store.undo_commit(commit.id, by="owner") is not None
    for again in ("tea", "cat", "berlin"):
        assert len(await _found(store, again)) == 1
    assert await _found(store, "paris") == await _found(store, "coffee") == []


async def test_facts_from_before_there_was_an_index_are_in_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SQL, "fact_words_make", "CREATE VIRTUAL TABLE x USING not_there(text)")
    await add(store, "Likes tea", "Likes cake")
    cake = await fact(store, "Likes cake")
    await store.remember(ALICE, Edit(removes=(cake.id,)), by="owner", origin="hand")
    assert await _found(store, "tea") == ["Likes tea"]
    assert not await store._engine.read(fact_search.is_made)
    monkeypatch.undo()
    assert await _found(store, "likes") == ["Likes tea"]
    assert await store._engine.read(fact_search.is_made)


async def test_facts_are_found_while_nothing_can_be_written(store: SqliteStore) -> None:
    await add(store, "Likes tea")
    await store._engine.write(lambda db: db.execute("PRAGMA query_only = ON"))
    assert await _found(store, "tea") == ["Likes tea"]


@settings(max_examples=150, deadline=None)
@given(query=st.text(st.sampled_from("ab \"'*^():{}+-,.\\%_\0\n") | st.characters(), max_size=30))
def test_whatever_is_asked_is_only_words(
    tmp_path_factory: pytest.TempPathFactory, query: str
) -> None:
    file: Path = tmp_path_factory.getbasetemp() / "facts-search.db"
    migrate(file)
    db = connect(file)
    assert fact_search.make(db)
    assert fact_search.find(db, query, [ALICE], person=None, limit=5) == []
    db.close()
