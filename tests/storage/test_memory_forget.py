"""What is forgotten is gone: from every table, index and summary, and from the file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from parley.protocol import Attachment, ChatMessage, ToolCall
from parley.storage.contract import Draft, Nothing, Outcome, TurnEnd
from parley.storage.memory import Edit, NewFact, View
from parley.storage.sqlite import SqliteStore
from tests.builders import a_message, say
from tests.storage.conformance.base import claim_one, spoken, waiting_replies, words
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
    vacuumed,
)

_WHERE, _MOVED = "I live at Zanzibarweg", "now at Quokkastrasse"


async def _told(store: SqliteStore) -> None:
    """A person tells where they live, corrects it twice, and likes tea."""
    seen = await talk(store, "hello", _WHERE, "and I like tea", "bye")
    where, tea, bye = [await source(store, text) for text in (_WHERE, "and I like tea", "bye")]
    await store.consolidate(
        a_fold(
            *(seen, NewFact("Lives at Zanzibarweg", "home", sources=(where,))),
            NewFact("Likes tea", sources=(tea,)),
            keep_from=bye,
            summary="- They live at Zanzibarweg.\n- They like tea.\n",
        )
    )
    first = await fact(store, "Lives at Zanzibarweg")
    seen = await talk(store, _MOVED, "bye again")
    where, bye = [await source(store, text) for text in (_MOVED, "bye again")]
    moved = NewFact("Lives at Quokkastrasse", "home", sources=(where,), replaces=(first.id,))
    summary = f"{seen.summary}- They live at Quokkastrasse.\n"
    assert await store.consolidate(a_fold(seen, moved, keep_from=bye, summary=summary)) is not None
    second = await fact(store, "Lives at Quokkastrasse")
    edit = Edit(changes={second.id: NewFact("Lives at Wombatallee", "home")})
    await store.remember(ALICE, edit, by="owner", origin="hand")
    await waiting_replies(store)


async def test_a_fact_goes_with_all_it_replaced(store: SqliteStore) -> None:
    await _told(store)
    before = await store.place_versions([ALICE])
    old, tea, home = await store.facts([ALICE], states=("current", "replaced"))
    forgotten = await store.forget([home.id, 999], by="test:user-of-c1")
    assert forgotten.facts == (old.id, home.id)
    assert (forgotten.kinds, forgotten.messages) == ({"home": 1}, 0)
    commit = forgotten.commit
    assert (commit.kind, commit.by, commit.place) == ("forgot", "test:user-of-c1", ALICE)
    assert (commit.added, commit.removed) == (0, 1)
    assert await store.facts([ALICE], states=("current", "replaced", "removed")) == [tea]
    assert await store.fact(home.id) is await store.fact(old.id) is None
    assert await store.sources_of(home.id) == []
    assert (await tended(store)).summary == "- They like tea.\n"
    assert await store.place_versions([ALICE]) > before
    for listed in await store.commits():
        whole = await store.commit_of(listed.id)
        assert whole is not None
        assert "Zanzibar" not in str(whole) and "Quokka" not in str(whole)
        assert {change.fact for change in whole.changes} <= {tea.id}
    assert len(await store.commits()) == 4
    assert await words(store) == ["bye again", "so: bye again"]


async def test_what_replaced_it_stays(store: SqliteStore) -> None:
    await add(store, "Lives in Berlin")
    [old] = await store.facts([ALICE])
    await add(store, NewFact("Lives in Paris", replaces=(old.id,)))
    await store.forget([old.id], by="owner")
    assert await texts(store) == ["Lives in Paris"]
    [new] = await store.facts([ALICE])
    assert await store.versions_of(new.id) == []


@pytest.mark.parametrize("with_words", [False, True], ids=["facts", "words"])
async def test_no_word_of_it_stays_in_the_file(tmp_path: Path, with_words: bool) -> None:
    file = tmp_path / "parley.db"
    store = SqliteStore.open(file)
    for number in range(40):
        await add(store, f"Kept fact number {number}", place=BOB)
    await _told(store)
    assert len(await store.search_facts("wombatallee", [ALICE])) == 1
    assert len(await store.search_entries("zanzibarweg")) == 2
    home = await fact(store, "Lives at Wombatallee")
    await store.put_vectors("m", {home.id: b"vector of it"})
    await store.put_view(ALICE, View("- Lives at Wombatallee\n", 1))
    forgotten = await store.forget([home.id], by="owner", words=with_words)
    assert forgotten.messages == (4 if with_words else 0)
    assert await store.search_facts("wombatallee", [ALICE]) == []
    assert await store.vectors("m", [ALICE]) == []
    await store.put_view(ALICE, View("- Likes tea\n", 2))
    await store.close()
    content = vacuumed(file)
    assert b"Likes tea" in content
    # The index writes what a word shares with the one before it only once.
    for gone in (b"ombatallee", b"ector of it"):
        assert gone not in content
    for said in (_WHERE, _MOVED):
        assert (f'"text":"{said}"'.encode() in content) != with_words
    assert b"Lives at" not in content
    assert b"lives at" not in content
    assert b"They live at" not in content


async def test_it_is_not_learned_again_in_other_words_from_the_same_message(
    store: SqliteStore,
) -> None:
    told, later = "please remember that I am allergic to nuts", "I am allergic to nuts, after all"
    await talk(store, told)
    entry = await source(store, told)
    edit = Edit(adds=(NewFact("Has a nut allergy", sources=(entry,)),))
    await store.remember(ALICE, edit, by="test:user-of-c1", origin="tool")
    [kept] = await store.facts([ALICE])
    await store.forget([kept.id], by="test:user-of-c1")
    await learn(store, NewFact("They are allergic to nuts", sources=(entry,)))
    assert await texts(store) == []
    await talk(store, later)
    again = NewFact("They are allergic to nuts", sources=(entry, await source(store, later)))
    await learn(store, again)
    assert await texts(store) == ["They are allergic to nuts"]


async def test_the_words_themselves_go_where_that_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "parley.db"
    store = SqliteStore.open(file)
    picture = Attachment("secretfile.png", "image/png", "/nowhere/secretfile.png", 9)
    message = replace(a_message("my secretword"), attachments=(picture,), event_id="e1")
    await store.submit("c1", "one", message)
    claim = await claim_one(store)
    await say(store, "more of it")
    await store.absorb(claim)
    call = ToolCall("t1", "memory", {"action": "add", "text": "The secretword"})
    await store.step(claim, [ChatMessage("assistant", "I see.", tool_calls=(call,))])
    await store.step(claim, [ChatMessage("tool", "Kept: the secretword", tool_call_id="t1")])
    reply = Draft("reply", claim.source, "Your secretword is kept.")
    await store.commit(claim, TurnEnd("done", (spoken(reply.text), spoken("noted")), (reply,)))
    await waiting_replies(store)
    seen = await tended(store)
    await store.consolidate(made(seen, NewFact("The secretword", sources=(1,))))
    await store.search_entries("secretword")
    [kept] = await store.facts([ALICE])
    before = await store.recall(seen.id)
    assert (await store.forget([kept.id], by="owner", words=True)).messages == 4
    since = await store.recall(seen.id, revision=before.revision, since=seen.last)
    assert since.whole
    said = [entry.message for entry in since.entries]
    blank = "[forgotten]"
    assert [line.text for line in said] == [blank, "more of it", blank, blank, blank, "noted"]
    assert said[0].attachments == ()
    assert said[2].tool_calls == (ToolCall("t1", "memory", {}),)
    assert said[3].tool_call_id == "t1"
    assert await store.search_entries("secretword") == []
    assert await store.search_entries("forgotten") == []
    assert (await store.submit("c1", "one", message)).state == "duplicate"
    assert (await tended(store)).seen.tend_at == seen.seen.tend_at
    await store.close()
    content = vacuumed(file)
    assert b"cretword" not in content and b"secretfile" not in content
    assert b"more of it" in content


async def test_it_is_not_learned_again_from_words_said_before(store: SqliteStore) -> None:
    await talk(store, "I live in Berlin", "Berlin, I said")
    [early, again] = [await source(store, text) for text in ("I live in Berlin", "Berlin, I said")]
    seen = await tended(store)
    await store.consolidate(
        replace(made(seen, NewFact("Lives in Berlin", sources=(early,))), learned=2)
    )
    [kept] = await store.facts([ALICE])
    await store.forget([kept.id], by="owner")
    await learn(store, NewFact("lives in berlin!", sources=(again,)))
    assert await texts(store) == []
    await talk(store, "I do live in Berlin after all")
    late = await source(store, "I do live in Berlin after all")
    await learn(store, NewFact("Lives in Berlin", sources=(late,)))
    assert await texts(store) == ["Lives in Berlin"]


async def test_earlier_words_of_a_fact_are_not_learned_again_either(store: SqliteStore) -> None:
    await talk(store, "I live in Berlin", chat="c2")
    await add(store, "Lives in Berlin")
    [kept] = await store.facts([ALICE])
    edit = Edit(changes={kept.id: NewFact("Lives in Paris")})
    await store.remember(ALICE, edit, by="owner", origin="hand")
    await store.forget([kept.id], by="owner")
    await learn(store, NewFact("Lives in Berlin", sources=(1,)), chat="c2")
    assert await texts(store) == []
    await talk(store, "hello", chat="c1")
    await learn(store, NewFact("Lives in Berlin", sources=(3,)), place=BOB)
    assert await texts(store, BOB) == ["Lives in Berlin"]


@pytest.mark.parametrize("way", ["add", "change"])
async def test_a_person_may_have_it_remembered_after_all(store: SqliteStore, way: str) -> None:
    await talk(store, "I live in Berlin", chat="c2")
    await add(store, "Lives in Berlin", "Something")
    kept, other = await store.facts([ALICE])
    await store.forget([kept.id], by="owner")
    if way == "add":
        await add(store, "Lives in Berlin")
    else:
        edit = Edit(changes={other.id: NewFact("Lives in Berlin")})
        await store.remember(ALICE, edit, by="owner", origin="hand")
    again = await fact(store, "Lives in Berlin")
    await learn(store, NewFact("Lives in Berlin", sources=(1,)), chat="c2")
    merged = await store.fact(again.id)
    assert merged is not None and merged.sources == (1,)


async def test_it_is_forgotten_once_under_a_name(store: SqliteStore) -> None:
    await add(store, "Lives in Berlin", "Likes tea")
    berlin, tea = await store.facts([ALICE])
    first = await store.forget([berlin.id], by="owner", dedupe="call")
    assert await store.forget([tea.id], by="owner", dedupe="call") == first
    assert await texts(store) == ["Likes tea"]
    nothing = await store.forget([berlin.id], by="owner")
    assert (nothing.facts, nothing.commit.id) == ((), 0)
    none = await store.forget([berlin.id], by="owner", dedupe="other")
    assert none.facts == () and none.commit.id > 0
    assert await store.forget([tea.id], by="owner", dedupe="other") == none


async def test_people_take_something_back_in_what_they_say(store: SqliteStore) -> None:
    await add(store, "Lives in Berlin", "Likes tea")
    await add(store, "Lives in Berlin", place=BOB)
    berlin, _ = await store.facts([ALICE])
    [bobs] = await store.facts([BOB])
    seen = await talk(store, "forget where I live")
    commit = await store.consolidate(
        made(
            *(seen, NewFact("Likes cake", sources=(1,))),
            NewFact("Lives in Berlin", sources=(1,)),
            forgets=(berlin.id, bobs.id),
        )
    )
    assert commit is not None and commit.added == 1
    assert await texts(store) == ["Likes tea", "Likes cake"]
    assert await texts(store, BOB) == ["Lives in Berlin"]
    assert [kept.kind for kept in await store.commits(places=[ALICE])][:2] == ["learned", "forgot"]


async def test_what_was_being_made_of_an_old_summary_is_not_stored(store: SqliteStore) -> None:
    await _told(store)
    seen = await tended(store)
    home = await fact(store, "Lives at Wombatallee")
    await store.forget([home.id], by="owner")
    late = a_fold(seen, keep_from=12, summary=seen.summary)
    assert await store.consolidate(late) is None


async def test_an_undone_fold_does_not_bring_it_back(store: SqliteStore) -> None:
    await _told(store)
    folds = [commit for commit in await store.commits() if commit.kind == "folded"]
    home = await fact(store, "Lives at Wombatallee")
    await store.forget([home.id], by="owner")
    assert await store.undo_commit(folds[0].id, by="owner") is not None
    assert await texts(store) == ["Likes tea"]
    assert (await tended(store)).summary == "- They like tea.\n"


# ── deleted sessions ──────────────────────────────────────────────────────────────────────────


async def test_facts_outlive_the_session_they_came_from(tmp_path: Path) -> None:
    file = tmp_path / "parley.db"
    store = SqliteStore.open(file)
    await talk(store, "in another", chat="c2")
    await _told(store)
    await learn(store, NewFact("Likes tea", sources=(1,)), chat="c2")
    deleted, other = await tended(store), await tended(store, "c2")
    tea = await fact(store, "Likes tea")
    assert tea.sources[0] == 1 and len(tea.sources) == 2
    undone = (await store.commits(places=[ALICE]))[0]
    assert await store.delete_session(deleted.id)
    [left, home] = await store.facts([ALICE])
    assert (left.text, left.sources, left.session) == ("Likes tea", (1,), other.id)
    assert (home.text, home.sources, home.session) == ("Lives at Wombatallee", (), None)
    await talk(store, "new words under old numbers")
    assert await store.sources_of(home.id) == []
    for listed in await store.commits():
        whole = await store.commit_of(listed.id)
        assert whole is not None
        assert whole.session in (None, other.id)
        assert (whole.summary, whole.folded) == (None, None)
        for change in whole.changes:
            for kept in (change.before, change.after):
                assert kept is None or set(kept.sources) <= {1}
    assert await store.undo_commit(undone.id, by="owner") is not None
    assert (await fact(store, "Likes tea")).sources == ()
    await store.close()
    content = vacuumed(file)
    assert deleted.id.encode() not in content
    assert b"They live at" not in content


async def test_a_folded_session_that_was_deleted_is_not_unfolded(store: SqliteStore) -> None:
    seen = await talk(store, "one", "two")
    commit = await store.consolidate(a_fold(seen, keep_from=3, summary="one"))
    assert commit is not None
    await store.delete_session(seen.id)
    assert await store.undo_commit(commit.id, by="owner") is None


def _kept(draft: Draft, outcome: Outcome) -> Draft:
    return draft


async def test_commands_that_told_of_it_are_blanked_and_those_of_others_are_not(
    store: SqliteStore, tmp_path: Path
) -> None:
    for chat in ("c1", "c2"):
        message = a_message("/memory add Lives at Zanzibarweg", chat=chat)
        receipt = await store.submit(chat, f"add-{chat}", message, kind="command")
        number, told_to = receipt.inbox_id, message.source
        reply = partial(_kept, Draft(f"command:{number}", told_to, "Kept: Lives at Zanzibarweg."))
        await store.answer(chat, number, Nothing(), reply)
    for delivery in await store.lease_deliveries("test", "me", 10):
        await store.delivered(delivery.id)
    await add(store, "Lives at Zanzibarweg")
    await add(store, "Lives at Zanzibarweg", place=BOB)
    await store.forget([(await fact(store, "Lives at Zanzibarweg")).id], by="owner")
    await store.close()
    with closing(sqlite3.connect(tmp_path / "parley.db")) as db:
        said = [
            row[0]
            for row in db.execute("SELECT json_extract(payload, '$.text') FROM inbox ORDER BY id")
        ]
        told = [row[0] for row in db.execute("SELECT text FROM outbox ORDER BY id")]
    assert ["Zanzibarweg" in text for text in (*said, *told)] == [False, True, False, True]
