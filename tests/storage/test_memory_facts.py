"""What is remembered: duplicates become one, corrections win, and everything has a source."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from parley.storage.contract import StoreError, TurnEnd
from parley.storage.memory import PROFILE, Edit, Fact, NewFact, View, chat_place
from parley.storage.sqlite import SqliteStore
from tests.builders import a_message, say
from tests.storage.conformance.base import claim_one, current, spoken
from tests.storage.tending import (
    ALICE,
    BOB,
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


async def _said(store: SqliteStore, *words: str, chat: str = "c1") -> list[int]:
    await talk(store, *words, chat=chat)
    return [await source(store, text, chat) for text in words]


async def test_the_same_said_twice_is_one_fact(store: SqliteStore) -> None:
    one, two = await _said(store, "I like tea", "yes, tea!")
    await learn(store, NewFact("Likes tea", confidence=0.6, sources=(one,)))
    await talk(store, "tea again")
    three = await source(store, "tea again")
    commit = await learn(store, NewFact("likes the tea.", confidence=0.9, sources=(three,)))
    [kept] = await store.facts([ALICE])
    assert (kept.text, kept.confidence, kept.sources) == ("Likes tea", 0.9, (one, three))
    assert kept.said_at == (await store.sources_of(kept.id))[-1].at
    [change] = commit.changes
    assert (change.action, change.fact) == ("merged", kept.id)
    assert change.before is not None and change.before.confidence == 0.6
    assert change.after == kept
    assert (commit.added, commit.removed) == (0, 0)
    assert two not in kept.sources


async def test_the_same_in_another_place_is_another_fact(store: SqliteStore) -> None:
    chat = chat_place("matrix:group:x")
    for place in (ALICE, BOB, PROFILE, chat):
        await add(store, "Likes tea", place=place)
    assert [await texts(store, place) for place in (ALICE, BOB, PROFILE, chat)] == [
        ["Likes tea"]
    ] * 4
    found = await store.facts([PROFILE, BOB, BOB])
    assert {fact.place for fact in found} == {PROFILE, BOB}
    assert len(found) == 2


async def test_a_correction_wins_over_what_it_corrects(store: SqliteStore) -> None:
    one, two = await _said(store, "I live in Berlin", "I moved to Paris")
    await learn(store, NewFact("Lives in Berlin", sources=(one,)))
    old = await fact(store, "Lives in Berlin")
    await talk(store, "to Paris, really")
    three = await source(store, "to Paris, really")
    commit = await learn(store, NewFact("Lives in Paris", sources=(three,), replaces=(old.id,)))
    assert await texts(store) == ["Lives in Paris"]
    assert [change.action for change in commit.changes] == ["added", "replaced"]
    assert (commit.added, commit.removed) == (1, 1)
    new = await fact(store, "Lives in Paris")
    was = await store.fact(old.id)
    assert was is not None and (was.state, was.replaced_by) == ("replaced", new.id)
    assert await store.versions_of(new.id) == [was]
    assert await store.versions_of(old.id) == []
    await add(store, NewFact("Lives in Rome", replaces=(new.id,)))
    rome = await fact(store, "Lives in Rome")
    assert [fact.id for fact in await store.versions_of(rome.id)] == [old.id, new.id]
    assert two not in new.sources


async def test_what_is_older_than_what_it_would_correct_is_left_out(store: SqliteStore) -> None:
    [early] = await _said(store, "I live in Berlin")
    await add(store, "Lives in Paris")
    new = await fact(store, "Lives in Paris")
    commit = await learn(store, NewFact("Lives in Berlin", sources=(early,), replaces=(new.id,)))
    assert commit.id == 0
    assert await texts(store) == ["Lives in Paris"]


async def test_what_was_corrected_or_removed_is_not_learned_from_older_words(
    store: SqliteStore,
) -> None:
    one, two, three = await _said(store, "Berlin", "tea", "Berlin again", chat="c2")
    await add(store, NewFact("Lives in Berlin", said_at=1.0), "Likes tea")
    old, tea = await store.facts([ALICE])
    edit = Edit(adds=(NewFact("Lives in Paris", replaces=(old.id,)),), removes=(tea.id,))
    await store.remember(ALICE, edit, by="owner", origin="command")
    await learn(
        store,
        NewFact("lives in Berlin", sources=(one,)),
        NewFact("likes tea", sources=(two,)),
        chat="c2",
    )
    assert await texts(store) == ["Lives in Paris"]
    await talk(store, "back in Berlin, with tea", chat="c2")
    late = await source(store, "back in Berlin, with tea", "c2")
    paris = (await store.facts([ALICE]))[0].id
    await learn(
        store,
        NewFact("lives in Berlin", sources=(late,), replaces=(paris,)),
        NewFact("likes tea", sources=(late,)),
        chat="c2",
    )
    assert await texts(store) == ["lives in Berlin", "likes tea"]
    assert three < late


async def test_what_replaces_itself_is_only_merged(store: SqliteStore) -> None:
    await add(store, "Lives in Berlin", "Has a cat")
    berlin, cat = await store.facts([ALICE])
    again = NewFact("lives in Berlin!", replaces=(berlin.id, cat.id), confidence=1.0)
    commit = await add(store, again)
    assert [change.action for change in commit.changes] == ["merged", "replaced"]
    assert await texts(store) == ["Lives in Berlin"]
    gone = await store.fact(cat.id)
    assert gone is not None and gone.replaced_by == berlin.id


async def test_only_what_is_known_in_that_place_is_replaced_by_learning(store: SqliteStore) -> None:
    await add(store, "Lives in Berlin", place=BOB)
    [one] = await _said(store, "I live in Rome")
    other = (await store.facts([BOB]))[0].id
    await learn(store, NewFact("Lives in Rome", sources=(one,), replaces=(other, 999)))
    assert (await texts(store), await texts(store, BOB)) == (
        ["Lives in Rome"],
        ["Lives in Berlin"],
    )


async def test_whose_words_it_was_is_known_when_they_are_one_persons(store: SqliteStore) -> None:
    chat = chat_place("test:group:c1")
    for user in ("alice", "bob"):
        message = a_message(f"{user} likes tea")
        message = replace(message, source=replace(message.source, user_id=user))
        await store.submit("c1", user, message)
        await store.commit(await claim_one(store), TurnEnd("done"))
    await learn(
        store,
        NewFact("Alice likes tea", sources=(1,)),
        NewFact("Both like tea", sources=(1, 2)),
        NewFact("Bob likes tea", sources=(1, 2), person="test:bob"),
        place=chat,
    )
    found = await store.facts([chat])
    assert [fact.person for fact in found] == ["test:alice", "", "test:bob"]
    assert [fact.text for fact in await store.facts([chat], person="test:bob")] == ["Bob likes tea"]
    await add(store, NewFact("alice likes tea", person="test:bob"), "bob likes tea", place=chat)
    assert [fact.person for fact in await store.facts([chat])] == ["test:alice", "", "test:bob"]


async def test_what_is_asked_for_in_a_turn_comes_from_its_words(store: SqliteStore) -> None:
    await talk(store, "earlier")
    await say(store, "remember that I like tea")
    claim = await claim_one(store)
    await say(store, "and cake")
    await store.submit("c1", "planned", replace(a_message("it is time"), internal=True))
    assert len(await store.absorb(claim)) == 2
    await store.step(claim, [spoken("noted")])
    edit = Edit(adds=(NewFact("Likes tea and cake"),))
    commit = await store.remember(
        *(ALICE, edit), by="test:user-of-c1", origin="tool", dedupe="call-1", turn=claim.turn
    )
    [found] = await store.facts([ALICE])
    said = [line.message.text for line in await store.sources_of(found.id)]
    assert said == ["remember that I like tea", "and cake"]
    assert (found.person, found.origin, found.session) == (
        *("test:user-of-c1", "tool"),
        claim.session,
    )
    assert (commit.kind, commit.by, commit.session) == ("told", "test:user-of-c1", claim.session)
    edit = Edit(adds=(NewFact("Something else"),))
    again = await store.remember(
        *(ALICE, edit), by="test:user-of-c1", origin="tool", dedupe="call-1", turn=claim.turn
    )
    assert again == commit
    assert await texts(store) == ["Likes tea and cake"]


async def test_a_fact_is_given_other_words(store: SqliteStore) -> None:
    [one] = await _said(store, "I like tea")
    await learn(store, NewFact("Likes tea", sources=(one,)))
    before = await fact(store, "Likes tea")
    edit = Edit(changes={before.id: NewFact("Likes green tea", "preference", 0.5)})
    commit = await store.remember(ALICE, edit, by="owner", origin="hand", kind="edited")
    [since] = await store.facts([ALICE])
    assert (since.id, since.text, since.sources) == (before.id, "Likes green tea", (one,))
    assert (since.kind, since.confidence, since.origin) == ("preference", 0.5, "hand")
    assert since.person == before.person
    [change] = commit.changes
    assert (change.action, change.before, change.after) == ("changed", before, since)
    assert commit.kind == "edited"


async def test_other_words_that_are_known_make_the_two_one(store: SqliteStore) -> None:
    await add(store, "Likes tea", "Likes green tea")
    tea, green = await store.facts([ALICE])
    edit = Edit(changes={tea.id: NewFact("likes GREEN tea")})
    await store.remember(ALICE, edit, by="owner", origin="hand")
    assert [kept.id for kept in await store.facts([ALICE])] == [green.id]
    assert await store.versions_of(green.id) == [await store.fact(tea.id)]


async def test_what_is_no_longer_so_is_removed(store: SqliteStore) -> None:
    await add(store, "Likes tea", "Has a cat")
    tea, _ = await store.facts([ALICE])
    commit = await store.remember(ALICE, Edit(removes=(tea.id,)), by="owner", origin="command")
    assert await texts(store) == ["Has a cat"]
    assert [kept.text for kept in await store.facts([ALICE], states=("removed",))] == ["Likes tea"]
    assert (commit.added, commit.removed) == (0, 1)


@pytest.mark.parametrize("way", ["change", "remove", "replace"])
@pytest.mark.parametrize("which", ["unknown", "elsewhere", "removed"])
async def test_what_is_not_there_cannot_be_changed(
    store: SqliteStore, way: str, which: str
) -> None:
    await add(store, "Of Bob", place=BOB)
    await add(store, "Removed", "Kept")
    removed = (await fact(store, "Removed")).id
    await store.remember(ALICE, Edit(removes=(removed,)), by="owner", origin="command")
    id = {"unknown": 99, "elsewhere": (await store.facts([BOB]))[0].id, "removed": removed}[which]
    new = NewFact("New")
    edit = {
        "change": Edit(adds=(new,), changes={id: NewFact("Other")}),
        "remove": Edit(adds=(new,), removes=(id,)),
        "replace": Edit(adds=(new, NewFact("More", replaces=(id,)))),
    }[way]
    with pytest.raises(StoreError, match=f"no fact {id} here"):
        await store.remember(ALICE, edit, by="owner", origin="command")
    assert await texts(store) == ["Kept"]
    with pytest.raises(StoreError, match="Nothing is remembered here"):
        await add(store, "Nowhere", place="")


async def test_facts_are_listed_oldest_first(store: SqliteStore) -> None:
    await add(store, "One", "Two", "Three")
    assert await texts(store) == ["One", "Two", "Three"]
    assert [kept.text for kept in await store.facts([ALICE], limit=2)] == ["One", "Two"]
    assert await store.facts([]) == []
    assert await store.fact(99) is None
    await add(store, "  ", "Half \ud83d a pair")
    assert (await texts(store))[3:] == ["Half � a pair"]


async def test_commits_are_listed_newest_first(store: SqliteStore) -> None:
    [one] = await _said(store, "I like tea")
    learned = await learn(store, NewFact("Likes tea", sources=(one,)))
    others = [await add(store, text, place=place) for text, place in (("A", BOB), ("B", ALICE))]
    ids = [learned.id, *(commit.id for commit in others)]
    assert [commit.id for commit in await store.commits()] == ids[::-1]
    assert all(commit.changes == () for commit in await store.commits())
    assert [commit.id for commit in await store.commits(places=[ALICE])] == [ids[2], ids[0]]
    assert [commit.id for commit in await store.commits(limit=1, before=ids[2])] == [ids[1]]
    session = (await current(store)).id
    assert [commit.id for commit in await store.commits(session=session)] == [ids[0]]
    assert await store.commits(session=session, places=[BOB]) == []
    assert await store.commit_of(learned.id) == learned
    assert await store.commit_of(99) is None


async def test_a_place_has_another_version_after_each_change(store: SqliteStore) -> None:
    assert await store.place_versions([ALICE, PROFILE]) == (0, 0)
    assert await store.places() == []
    await add(store, "Likes tea")
    await add(store, "Likes cake")
    await add(store, "Of all", place=PROFILE)
    assert await store.place_versions([PROFILE, "person:none", ALICE, PROFILE]) == (1, 0, 2, 1)
    found = await store.places()
    assert [(kept.place, kept.facts, kept.version, kept.view_version) for kept in found] == [
        (ALICE, 2, 2, -1),
        (PROFILE, 1, 1, -1),
    ]


async def test_a_view_is_behind_until_it_is_written(store: SqliteStore) -> None:
    assert await store.view(ALICE) is None
    await add(store, "Likes tea")
    await add(store, "Of all", place=PROFILE)
    await store.put_view(ALICE, View("- Likes tea\n", 1))
    assert await store.view(ALICE) == View("- Likes tea\n", 1)
    assert [kept.place for kept in await store.places(unwritten=True)] == [PROFILE]
    await add(store, "Likes cake")
    assert [kept.place for kept in await store.places(unwritten=True)] == [ALICE, PROFILE]
    await store.put_view(BOB, View("", 0))
    assert await store.view(BOB) == View("", 0)
    assert len(await store.places(unwritten=True)) == 2


async def test_vectors_are_of_the_words_a_fact_has_now(store: SqliteStore) -> None:
    await add(store, "Likes tea", "Has a cat")
    await add(store, "Of Bob", place=BOB)
    tea, cat = await store.facts([ALICE])
    assert await store.unembedded("m", limit=2) == [(tea.id, "Likes tea"), (cat.id, "Has a cat")]
    await store.put_vectors("m", {tea.id: b"1", cat.id: b"2", 99: b"3"})
    assert [text for _, text in await store.unembedded("m")] == ["Of Bob"]
    assert len(await store.unembedded("other")) == 3
    assert await store.vectors("m", [ALICE, ALICE]) == [(tea.id, b"1"), (cat.id, b"2")]
    assert await store.vectors("other", [ALICE]) == []
    edit = Edit(changes={tea.id: NewFact("Likes green tea")}, removes=(cat.id,))
    await store.remember(ALICE, edit, by="owner", origin="hand")
    assert await store.vectors("m", [ALICE]) == []
    assert (tea.id, "Likes green tea") in await store.unembedded("m")
    await store.put_vectors("m", {cat.id: b"late"})
    assert await store.vectors("m", [ALICE]) == []


async def test_what_is_remembered_outlives_the_process(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "parley.db")
    began = time.time()
    await add(store, "Likes tea")
    before: list[Fact] = await store.facts([ALICE])
    assert began <= before[0].said_at == before[0].at
    await store.close()
    again = SqliteStore.open(tmp_path / "parley.db")
    assert await again.facts([ALICE]) == before
    assert (await again.commits())[0].added == 1
    await again.close()


async def test_a_correction_takes_the_old_line_out_of_the_summary(store: SqliteStore) -> None:
    seen = await talk(store, "my cat is Miso", "and I like tea", "bye")
    cat, bye = [await source(store, text) for text in ("my cat is Miso", "bye")]
    fold = a_fold(
        *(seen, NewFact("Their cat is Miso", sources=(cat,))),
        keep_from=bye,
        summary="- Their cat is Miso.\n- They like tea.",
    )
    assert await store.consolidate(fold) is not None
    miso = await fact(store, "Their cat is Miso")
    seen = await talk(store, "no, the cat is Mochi")
    at = await source(store, "no, the cat is Mochi")
    right = NewFact("Their cat is Mochi", sources=(at,), replaces=(miso.id,))
    assert await store.consolidate(made(seen, right)) is not None
    assert (await tended(store)).summary == "- They like tea."


@pytest.mark.parametrize(
    "since",
    [
        ("b", "a", "c"),
        ("b", "c", "a"),
        ("b", "x", "c"),
        ("x", "a", "b"),
        ("b", "a", "a"),
        ("c", "c", "b"),
    ],
    ids="".join,
)
async def test_words_that_go_from_one_fact_to_another_are_not_lost(
    store: SqliteStore, since: tuple[str, ...]
) -> None:
    words = {each: f"Has a {each}{each}{each}" for each in "abcx"}
    await add(store, *(words[each] for each in "abc"))
    ids = [fact.id for fact in await store.facts([ALICE])]
    changes = {id: NewFact(words[each]) for id, each in zip(ids, since, strict=True)}
    await store.remember(ALICE, Edit(changes=changes), by="owner", origin="hand")
    assert set(await texts(store)) == {words[each] for each in since}
