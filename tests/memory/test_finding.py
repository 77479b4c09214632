"""Finding facts by words and by meaning, in a real store."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.memory import finding
from parley.memory.embeddings import Embedder, EmbeddingError, find_embedder
from parley.memory.finding import Finder, fuse
from parley.storage.memory import PROFILE, Edit, Fact, NewFact, chat_place, person_place
from parley.storage.sqlite import SqliteStore

ANN, BOB = person_place("test:ann"), person_place("test:bob")
ROOM = chat_place("test:group:room")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "parley.db")
    yield opened
    await opened.close()


def _by_meaning(store: SqliteStore) -> Finder:
    return Finder(store, lambda: find_embedder("auto"))


async def _know(store: SqliteStore, place: str, *texts: str, person: str = "") -> list[int]:
    adds = tuple(NewFact(text, person=person) for text in texts)
    commit = await store.remember(place, Edit(adds=adds), by="owner", origin="command")
    whole = await store.commit_of(commit.id)
    assert whole is not None
    return [change.fact for change in whole.changes]


def _texts(facts: Sequence[Fact]) -> list[str]:
    return [fact.text for fact in facts]


async def test_without_a_model_words_are_found_and_meaning_is_not(store: SqliteStore) -> None:
    await _know(store, ANN, "Their dog is called Biscuit")
    finder = Finder(store, lambda: None)
    assert _texts(await finder("biscuit", [ANN])) == ["Their dog is called Biscuit"]
    assert await finder("what pet", [ANN]) == []
    assert await finder.catch_up() == 0


async def test_meaning_is_found_where_no_word_is_the_same(store: SqliteStore) -> None:
    await _know(
        store,
        ANN,
        "Their dog is called Biscuit",
        "Uses Arch Linux on the laptop",
        "Ines is a sister of theirs",
    )
    finder = _by_meaning(store)
    assert _texts(await finder("pets", [ANN]))[:1] == ["Their dog is called Biscuit"]
    assert _texts(await finder("sibling", [ANN]))[:1] == ["Ines is a sister of theirs"]
    assert _texts(await finder("operating system", [ANN]))[:1] == ["Uses Arch Linux on the laptop"]


async def test_nonsense_finds_nothing(store: SqliteStore) -> None:
    await _know(store, ANN, "Their dog is called Biscuit", "Uses Arch Linux on the laptop")
    finder = _by_meaning(store)
    for query in ("blorp", "quantum chromodynamics lattice", "   ", "!!!! ????"):
        assert await finder(query, [ANN]) == [], query


async def test_only_facts_of_the_given_places_and_person_come_back(store: SqliteStore) -> None:
    """However near others are: they are of somebody else."""
    for place in (ANN, BOB, ROOM, PROFILE):
        await _know(store, place, "The dog is called Biscuit")
    await _know(store, ROOM, "Ann has a dog as well", person="test:ann")
    await _know(store, ROOM, "Bob has a dog as well", person="test:bob")
    finder = _by_meaning(store)
    for query in ("dog", "puppies and pets", "Biscuit"):
        for _ in range(2):  # fresh, and from what is kept of the first time
            found = await finder(query, [ANN, PROFILE])
            assert {fact.place for fact in found} <= {ANN, PROFILE}, query
            assert len(found) == 2, query
        theirs = await finder(query, [ROOM], person="test:ann")
        assert {fact.person for fact in theirs} <= {"test:ann"}, query
    assert _texts(await finder("puppies", [ROOM], person="test:ann")) == ["Ann has a dog as well"]
    assert await finder("dog", []) == []


async def test_a_person_is_found_behind_many_others(store: SqliteStore) -> None:
    others = (f"Dog number {number} is a good dog" for number in range(30))
    await _know(store, ROOM, *others, person="test:bob")
    await _know(store, ROOM, "Keeps a cat and a puppy at home", person="test:ann")
    found = await _by_meaning(store)("dogs", [ROOM], person="test:ann", limit=3)
    assert _texts(found) == ["Keeps a cat and a puppy at home"]


async def test_what_is_new_changed_or_forgotten_is_so_in_the_next_search(
    store: SqliteStore,
) -> None:
    [dog] = await _know(store, ANN, "Their dog is called Biscuit")
    finder = _by_meaning(store)
    assert [fact.id for fact in await finder("pets", [ANN])] == [dog]
    [cat] = await _know(store, ANN, "Their cat is called Minka")
    assert {fact.id for fact in await finder("pets", [ANN])} == {dog, cat}

    changed = Edit(changes={cat: NewFact("Plays the cello in an orchestra")})
    await store.remember(ANN, changed, by="owner", origin="command")
    assert [fact.id for fact in await finder("pets", [ANN])] == [dog]
    assert [fact.id for fact in await finder("musical instrument", [ANN])] == [cat]

    await store.forget([dog], by="owner")
    assert await finder("pets", [ANN]) == []
    embedder = find_embedder("auto")
    assert embedder is not None
    assert [id for id, _ in await store.vectors(embedder.name, [ANN])] == [cat]


async def test_vectors_are_made_once(store: SqliteStore) -> None:
    await _know(store, ANN, *(f"Fact number {number} of many" for number in range(250)))
    finder = _by_meaning(store)
    assert await finder.catch_up() == 250
    assert await finder.catch_up() == 0
    await _know(store, BOB, "One more")
    assert await finder.catch_up() == 1


class _Watched:
    """A real model; notes where it was asked."""

    def __init__(self, inner: Embedder) -> None:
        self.name = inner.name
        self.threads: list[int] = []
        self._inner = inner

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.threads.append(threading.get_ident())
        return self._inner.embed(texts)


async def test_the_model_is_looked_for_and_asked_in_threads_only(store: SqliteStore) -> None:
    inner = find_embedder("auto")
    assert inner is not None
    watched, made_in = _Watched(inner), list[int]()

    def make() -> Embedder:
        made_in.append(threading.get_ident())
        return watched

    await _know(store, ANN, "Their dog is called Biscuit")
    finder = Finder(store, make)
    assert made_in == []
    assert await finder("pets", [ANN])
    assert await finder("pets", [ANN])
    assert len(made_in) == 1
    assert len(watched.threads) == 3  # the fact, and twice the question
    assert threading.get_ident() not in {*made_in, *watched.threads}


class _Broken:
    name = "broken"
    asked = 0

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.asked += 1
        raise EmbeddingError("It cannot be loaded.")


async def test_a_model_that_cannot_be_loaded_leaves_words(store: SqliteStore) -> None:
    await _know(store, ANN, "Their dog is called Biscuit")
    broken = _Broken()
    finder = Finder(store, lambda: broken)
    for _ in range(3):
        assert _texts(await finder("biscuit", [ANN])) == ["Their dog is called Biscuit"]
        assert await finder.catch_up() == 0
    assert broken.asked == 1


async def test_what_is_kept_of_searches_is_bounded(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "_KEPT_FACTS", 5)
    places = [person_place(f"test:{number}") for number in range(8)]
    for place in places:
        await _know(store, place, "Their dog is called Biscuit", "They keep a parrot")
    finder = _by_meaning(store)
    for place in (*places, *places):
        assert await finder("pets", [place])
    assert len(finder._near) == 2


_FACTS = st.integers(1, 30).map(
    lambda id: Fact(id, ANN, "note", f"fact {id}", 1.0, "tool", "", 0.0, 0.0)
)
_RANKING = st.lists(_FACTS, unique_by=lambda fact: fact.id, max_size=20)


@given(_RANKING, _RANKING, st.integers(1, 12))
def test_fused_rankings_hold_each_fact_once(
    words: list[Fact], meaning: list[Fact], limit: int
) -> None:
    fused = [fact.id for fact in fuse((words, meaning), limit=limit)]
    known = {fact.id for fact in (*words, *meaning)}
    assert len(fused) == len(set(fused)) == min(limit, len(known))
    assert set(fused) <= known


@given(_RANKING, st.integers(1, 12))
def test_what_both_rankings_agree_on_stays_in_order(ranking: list[Fact], limit: int) -> None:
    assert fuse((ranking, ranking), limit=limit) == ranking[:limit]


def test_found_by_both_comes_before_found_by_one() -> None:
    facts = [Fact(id, ANN, "note", str(id), 1.0, "tool", "", 0.0, 0.0) for id in range(1, 5)]
    fused = fuse(([facts[0], facts[1]], [facts[2], facts[1]]), limit=3)
    assert fused[0].id == 2
