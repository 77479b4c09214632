"""A commit is taken back: what nobody touched since is as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from sqlite3 import Connection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.storage.contract import Draft, Effect, RetryTurn, UndoTurn
from parley.storage.memory import Commit, Edit, Fact, NewFact
from parley.storage.sqlite import SqliteStore, facts, remembering, undoing
from parley.storage.sqlite.engine import connect
from parley.storage.wording import normal_form
from tests.builders import a_message, say
from tests.storage.conformance.base import claim_one, words
from tests.storage.tending import (
    ALICE,
    a_fold,
    add,
    fact,
    learn,
    made,
    source,
    talk,
    tended,
    texts,
)


def _content(found: Sequence[Fact]) -> list[Fact]:
    """All but when it was last changed."""
    return [replace(fact, at=0.0) for fact in found]


async def test_a_commit_with_all_kinds_of_changes_is_taken_back(store: SqliteStore) -> None:
    await talk(store, "I like tea")
    await add(store, "Likes tea", "Lives in Berlin", "Has a cat", "Plays chess")
    before = await store.facts([ALICE])
    tea, berlin, cat, chess = before
    edit = Edit(
        adds=(NewFact("Lives in Paris", replaces=(berlin.id,)), NewFact("likes TEA", sources=(1,))),
        changes={cat.id: NewFact("Has two cats")},
        removes=(chess.id,),
    )
    commit = await store.remember(ALICE, edit, by="owner", origin="hand")
    actions = [change.action for change in commit.changes]
    assert sorted(actions) == ["added", "changed", "merged", "removed", "replaced"]
    undid = await store.undo_commit(commit.id, by="alice")
    assert undid is not None
    assert (undid.kind, undid.by, undid.place) == ("undid", "alice", ALICE)
    assert _content(await store.facts([ALICE])) == _content(before)
    assert (await fact(store, "Lives in Paris")).state == "removed"
    assert [change.action for change in undid.changes].count("restored") == 2
    taken = await store.commit_of(commit.id)
    assert taken is not None and taken.undone_by == undid.id
    assert await store.place_versions([ALICE]) == (3,)
    assert tea.sources == ()


async def test_a_commit_is_taken_back_once(store: SqliteStore) -> None:
    commit = await add(store, "Likes tea", "Has a cat")
    undid = await store.undo_commit(commit.id, by="owner")
    assert undid is not None
    assert await store.undo_commit(commit.id, by="owner") is None
    assert await store.undo_commit(undid.id, by="owner") is None
    assert await store.undo_commit(99, by="owner") is None
    await add(store, "Likes cake")
    forgot = await store.forget([(await fact(store, "Likes cake")).id], by="owner")
    assert await store.undo_commit(forgot.commit.id, by="owner") is None
    assert len(await store.commits()) == 4


async def test_what_was_changed_since_stays(store: SqliteStore) -> None:
    commit = await add(store, "Likes tea", "Has a cat")
    tea, cat = await store.facts([ALICE])
    edit = Edit(changes={tea.id: NewFact("Likes green tea")})
    await store.remember(ALICE, edit, by="owner", origin="hand")
    assert await store.undo_commit(commit.id, by="owner") is not None
    assert await texts(store) == ["Likes green tea"]
    assert (await fact(store, "Has a cat")).state == "removed"
    only = await add(store, "Plays chess")
    chess = await fact(store, "Plays chess")
    await store.remember(ALICE, Edit(removes=(chess.id,)), by="owner", origin="hand")
    assert await store.undo_commit(only.id, by="owner") is None
    assert cat.id != chess.id


async def test_what_a_changed_fact_replaced_stays_replaced(store: SqliteStore) -> None:
    await add(store, "Lives in Berlin")
    [berlin] = await store.facts([ALICE])
    commit = await add(store, NewFact("Lives in Paris", replaces=(berlin.id,)))
    paris = await fact(store, "Lives in Paris")
    edit = Edit(changes={paris.id: NewFact("Lives in Rome")})
    await store.remember(ALICE, edit, by="owner", origin="hand")
    assert await store.undo_commit(commit.id, by="owner") is None
    assert await texts(store) == ["Lives in Rome"]


async def test_a_source_that_was_taken_back_may_come_again(store: SqliteStore) -> None:
    await talk(store, "I like tea")
    await add(store, "Likes tea")
    for _ in range(2):
        commit = await add(store, NewFact("likes tea", sources=(1,)))
        assert (await fact(store, "Likes tea")).sources == (1,)
        assert await store.undo_commit(commit.id, by="owner") is not None
        assert (await fact(store, "Likes tea")).sources == ()


async def test_what_came_back_by_itself_is_not_there_twice(store: SqliteStore) -> None:
    await add(store, "Lives in Berlin")
    [berlin] = await store.facts([ALICE])
    commit = await add(store, NewFact("Lives in Paris", replaces=(berlin.id,)))
    await add(store, "lives in Berlin")
    assert await store.undo_commit(commit.id, by="owner") is not None
    assert await texts(store) == ["lives in Berlin"]


async def test_what_was_undone_is_not_learned_from_the_same_words(store: SqliteStore) -> None:
    await talk(store, "I like tea", "tea, I say")
    seen = await tended(store)
    early = replace(made(seen, NewFact("Likes tea", sources=(1,))), learned=2)
    commit = await store.consolidate(early)
    assert commit is not None
    assert await store.undo_commit(commit.id, by="owner") is not None
    since = await tended(store)
    assert since.seen == replace(seen.seen, learned=2)
    await learn(store, NewFact("Likes tea", sources=(3,)))
    assert await texts(store) == []


async def test_a_fold_is_taken_back_with_its_summary(store: SqliteStore) -> None:
    seen = await talk(store, "one", "two", "three")
    first = await store.consolidate(a_fold(seen, keep_from=3, summary="one"))
    second = await store.consolidate(a_fold(await tended(store), keep_from=5, summary="one, two"))
    assert first is not None and second is not None
    assert await store.undo_commit(first.id, by="owner") is None
    undid = await store.undo_commit(second.id, by="owner")
    assert undid is not None
    assert (undid.folded, undid.summary) == ((5, 3), ("one, two", "one"))
    since = await tended(store)
    assert (since.summary, since.window_start) == ("one", 3)
    assert (since.seen.folded, since.seen.learned, since.seen.revision) == (3, 6, 3)
    assert await words(store) == ["two", "so: two", "three", "so: three"]
    assert await store.undo_commit(first.id, by="owner") is not None
    since = await tended(store)
    assert (since.summary, since.window_start, since.seen.folded) == ("", 0, 0)
    assert since.seen.tend_at == seen.seen.tend_at


async def test_a_window_that_was_cut_since_stays_cut(store: SqliteStore) -> None:
    seen = await talk(store, "one", "two", "three")
    commit = await store.consolidate(a_fold(seen, keep_from=3, summary="one"))
    assert commit is not None
    await store.move_window(seen.id, 5)
    assert await store.undo_commit(commit.id, by="owner") is not None
    since = await tended(store)
    assert (since.window_start, since.seen.folded, since.summary) == (5, 0, "")


async def test_a_window_that_was_cut_before_stays_cut(store: SqliteStore) -> None:
    seen = await talk(store, "one", "two", "three")
    await store.move_window(seen.id, 5)
    commit = await store.consolidate(a_fold(await tended(store), keep_from=3, summary="one"))
    assert commit is not None
    assert await store.undo_commit(commit.id, by="owner") is not None
    assert (await tended(store)).window_start == 5


async def test_a_fold_is_taken_back_while_its_session_is_used(store: SqliteStore) -> None:
    seen = await talk(store, "one", "two")
    commit = await store.consolidate(a_fold(seen, keep_from=3, summary="one"))
    assert commit is not None
    await say(store, "three")
    await claim_one(store)
    assert await store.undo_commit(commit.id, by="owner") is not None
    recalled = await store.recall(seen.id, revision=1, since=4)
    assert recalled.whole and len(recalled.entries) == 5


# ── whatever happens ──────────────────────────────────────────────────────────────────────────

_TEXTS = st.sampled_from(["Likes tea", "likes the tea.", "Likes cake", "Has a cat", "Is 42"])
_NEW = st.builds(
    NewFact,
    _TEXTS,
    confidence=st.sampled_from([0.5, 1.0]),
    sources=st.lists(st.integers(1, 8), max_size=2).map(tuple),
    replaces=st.lists(st.integers(1, 6), max_size=2, unique=True).map(tuple),
    said_at=st.sampled_from([None, 1.0, 2.0]),
)
_EDITS = st.builds(
    lambda adds, changes, removes: Edit(tuple(adds), changes, tuple(removes)),
    st.lists(_NEW, max_size=3),
    st.dictionaries(st.integers(1, 6), _NEW, max_size=1),
    st.lists(st.integers(1, 6), max_size=1),
)


def _within(edit: Edit, known: set[int]) -> Edit:
    """The same edit, of facts that are there."""

    def new(fact: NewFact) -> NewFact:
        return replace(fact, replaces=tuple(id for id in fact.replaces if id in known))

    changes = {id: new(fact) for id, fact in (edit.changes or {}).items() if id in known}
    removes = tuple(id for id in edit.removes if id in known)
    return Edit(tuple(map(new, edit.adds)), changes, removes)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A database in which something was said; each example leaves it as it was."""
    file: Path = tmp_path_factory.mktemp("undo") / "parley.db"

    async def say_something() -> None:
        store = SqliteStore.open(file)
        await talk(store, "one", "two", "three", "four")
        await store.close()

    asyncio.run(say_something())
    with closing(connect(file)) as connection:
        yield connection


@settings(max_examples=150, deadline=None)
@given(edits=st.lists(_EDITS, min_size=1, max_size=5))
def test_taking_commits_back_one_by_one_leads_back(db: Connection, edits: list[Edit]) -> None:
    db.execute("BEGIN")
    try:
        before: list[list[Fact]] = []
        commits: list[Commit] = []
        for now, edit in enumerate(edits, start=10):
            found = _current(db)
            assert len(found) == len({normal_form(fact.text) for fact in found})
            before.append(found)
            commits.append(_remember(db, _within(edit, {fact.id for fact in found}), now))
        for commit, were in zip(reversed(commits), reversed(before), strict=True):
            undid = undoing.undo(db, commit.id, by="o", now=99.0)
            assert (undid is not None) == bool(commit.changes)
            assert _current(db) == were
    finally:
        db.execute("ROLLBACK")


def _current(db: Connection) -> list[Fact]:
    return _content(facts.listing(db, [ALICE], person=None, states=("current",), limit=None))


def _remember(db: Connection, edit: Edit, now: float) -> Commit:
    return remembering.remember(
        *(db, ALICE, edit),
        by="o",
        origin="hand",
        kind="edited",
        note="",
        dedupe=None,
        turn=None,
        now=now,
    )


@pytest.mark.parametrize("effect", [UndoTurn(), RetryTurn()], ids=["undo", "retry"])
async def test_what_was_learned_from_a_turn_goes_when_it_is_taken_back(
    store: SqliteStore, effect: Effect
) -> None:
    await talk(store, "I live in Lyon")
    await learn(store, NewFact("Lives in Lyon", sources=(await source(store, "I live in Lyon"),)))
    lyon = await fact(store, "Lives in Lyon")
    await talk(store, "now in Paris, and I like tea")
    said = (await source(store, "now in Paris, and I like tea"),)
    await learn(
        store,
        NewFact("Lives in Paris", sources=said, replaces=(lyon.id,)),
        NewFact("Likes tea", sources=said),
    )
    await add(store, "Has a cat")
    message = a_message("/undo")
    receipt = await store.submit("c1", "undo", message, kind="command")
    reply = Draft("command:1", message.source, "Taken back.")
    await store.answer("c1", receipt.inbox_id, effect, lambda outcome: reply)
    assert await texts(store) == ["Lives in Lyon", "Has a cat"]
    [commit, *_] = await store.commits(places=[ALICE])
    assert (commit.note, commit.removed) == ("taken back with its message", 2)
    assert await store.undo_commit(commit.id, by="owner") is not None
    assert sorted(await texts(store)) == ["Has a cat", "Likes tea", "Lives in Paris"]
