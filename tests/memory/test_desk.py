"""Who may do what with what is remembered: each only with their own, and no answer tells more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.memory.desk import Imported, MemoryDesk, Whose, diff_of
from parley.memory.views import Views
from parley.protocol import ParleyError
from parley.storage.memory import PROFILE, Change, Commit, Edit, Fact, NewFact
from parley.storage.sqlite.store import SqliteStore
from tests.builders import a_message, an_end, say
from tests.memory.facts import HERE, a_fact
from tests.storage.conformance.base import claim_one

ROOM = "chat:test:group:r1"
ANN = "test:ann"
BEN = "test:ben"
MINE = Whose((HERE,))
IN_ROOM = Whose((ROOM,), ANN)
OWNER = Whose((PROFILE, HERE, ROOM))


@pytest.fixture
def desk(store: SqliteStore) -> MemoryDesk:
    return MemoryDesk(store)


async def told(desk: MemoryDesk, text: str, *, place: str = HERE, person: str = ANN) -> Fact:
    return await desk.add(place, text, by=person, person=person, origin="command")


# ── looking ───────────────────────────────────────────────────────────────────────────────────


async def test_each_sees_only_their_own(desk: MemoryDesk) -> None:
    private = await told(desk, "Drinks tea")
    anns = await told(desk, "Ann drinks cocoa", place=ROOM)
    bens = await told(desk, "Ben drinks cocoa", place=ROOM, person=BEN)
    assert await desk.listing(MINE) == [private]
    assert await desk.listing(IN_ROOM) == [anns]
    assert await desk.listing(OWNER) == [private, anns, bens]
    assert await desk.listing(OWNER, limit=1) == [private]
    assert await desk.search("drinks", MINE) == [private]
    assert await desk.search("drinks", IN_ROOM) == [anns]
    assert await desk.fact(anns.id, IN_ROOM) == anns


async def test_what_is_not_theirs_is_as_if_it_were_not_there(desk: MemoryDesk) -> None:
    bens = await told(desk, "Ben drinks cocoa", place=ROOM, person=BEN)
    for id, whose in ((bens.id, IN_ROOM), (bens.id, MINE), (999, OWNER)):
        calls: list[Any] = [
            desk.fact(id, whose),
            desk.why(id, whose),
            desk.change(id, "Something else", whose, by=ANN, origin="command"),
            desk.forget([id], whose, by=ANN),
            desk.forget([id], whose, by=ANN, dedupe=f"once:{id}:{whose}"),
        ]
        for call in calls:
            with pytest.raises(ParleyError) as caught:
                await call
            assert str(caught.value) == f"There is no fact {id} here."
    assert await desk.listing(OWNER) == [bens]


async def test_another_search_may_take_the_place_of_the_stores(store: SqliteStore) -> None:
    asked: list[object] = []

    async def search(query: str, places: object, person: str | None, limit: int) -> list[Fact]:
        asked.append((query, places, person, limit))
        return [a_fact(1)]

    assert await MemoryDesk(store, search=search).search("tea", IN_ROOM, limit=3) == [a_fact(1)]
    assert asked == [("tea", (ROOM,), ANN, 3)]


async def test_a_fact_leads_to_what_it_replaced_and_to_the_words_it_came_from(
    desk: MemoryDesk, store: SqliteStore
) -> None:
    await say(store, "I moved to Graz")
    claim = await claim_one(store)
    speaker = "test:user-of-c1"
    old = await told(desk, "Lives in Linz", person=speaker)
    new = NewFact("Lives in Graz", replaces=(old.id,), person=speaker)
    commit = await store.remember(
        HERE, Edit(adds=(new,)), by="model", origin="learned", turn=claim.turn
    )
    await store.commit(claim, an_end("Noted."))
    why = await desk.why(commit.changes[0].fact, MINE)
    assert why.fact.text == "Lives in Graz"
    assert [each.text for each in why.versions] == ["Lives in Linz"]
    assert [line.message.text for line in why.sources] == ["I moved to Graz"]
    theirs = await desk.why(why.fact.id, Whose((HERE,), speaker))
    assert theirs == why


# ── changing ──────────────────────────────────────────────────────────────────────────────────


async def test_what_is_added_is_one_line_and_one_fact(desk: MemoryDesk) -> None:
    fact = await desk.add(
        HERE, "  Drinks\n\t tea\x07 ", kind=" Preference ", by=ANN, person=ANN, origin="tool"
    )
    assert (fact.text, fact.kind, fact.origin, fact.person) == (
        "Drinks tea",
        "preference",
        "tool",
        ANN,
    )
    assert (await told(desk, "drinks TEA.")).id == fact.id
    assert len(await desk.listing(MINE)) == 1


async def test_what_is_done_again_under_one_name_is_done_once(desk: MemoryDesk) -> None:
    first = await desk.add(HERE, "Drinks tea", by=ANN, person=ANN, origin="tool", dedupe="a")
    assert (
        await desk.add(HERE, "Drinks tea", by=ANN, person=ANN, origin="tool", dedupe="a") == first
    )
    for _ in range(2):
        changed = await desk.change(
            first.id, "Drinks cocoa", MINE, by=ANN, origin="tool", dedupe="b"
        )
        assert (changed.id, changed.text) == (first.id, "Drinks cocoa")
    gone = await desk.forget([first.id], MINE, by=ANN, dedupe="c")
    assert gone.facts == (first.id,)
    again = await desk.forget([first.id], MINE, by=ANN, dedupe="c")
    assert (again.commit.id, again.facts) == (gone.commit.id, gone.facts)
    with pytest.raises(ParleyError, match="forgotten since"):
        await desk.add(HERE, "Drinks tea", by=ANN, person=ANN, origin="tool", dedupe="a")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (" \n\x00 ", "no words"),
        ("x" * 501, "at most 500 characters, and this has 501"),
        ("The password is hunter2", "^That looks like a key or password; such things are not"),
    ],
    ids=["empty", "long", "secret"],
)
async def test_words_that_cannot_be_remembered_are_refused(
    desk: MemoryDesk, text: str, why: str
) -> None:
    fact = await told(desk, "x" * 500)
    with pytest.raises(ParleyError, match=why):
        await told(desk, text)
    with pytest.raises(ParleyError, match=why):
        await desk.change(fact.id, text, MINE, by=ANN, origin="command")
    assert await desk.listing(MINE) == [fact]


async def test_other_words_keep_the_number_and_whose_they_were(desk: MemoryDesk) -> None:
    fact = await told(desk, "Drinks tea", place=ROOM)
    changed = await desk.change(
        fact.id, "Drinks cocoa", OWNER, by="owner", origin="hand", kind="Taste"
    )
    assert (changed.id, changed.text, changed.kind) == (fact.id, "Drinks cocoa", "taste")
    assert await desk.listing(IN_ROOM) == [changed]
    other = await told(desk, "Drinks milk", place=ROOM)
    merged = await desk.change(other.id, "drinks cocoa", IN_ROOM, by=ANN, origin="command")
    assert merged.id == fact.id
    with pytest.raises(ParleyError, match="no fact"):
        await desk.change(other.id, "Drinks water", IN_ROOM, by=ANN, origin="command")


async def test_forgetting_takes_all_or_nothing_and_the_files_at_once(
    store: SqliteStore, tmp_path: Path
) -> None:
    views = Views(tmp_path / "memory", store)
    desk = MemoryDesk(store, views=views)
    tea, cat = await told(desk, "Drinks tea"), await told(desk, "Has a cat")
    await views.sync()
    file = views.file_of(HERE)
    file.write_text(file.read_text().replace("Drinks tea", "Drinks green tea"))
    with pytest.raises(ParleyError, match="no fact 999"):
        await desk.forget([tea.id, 999], MINE, by=ANN)
    assert len(await desk.listing(MINE)) == 2
    gone = await desk.forget([tea.id, tea.id], MINE, by=ANN)
    assert (gone.facts, gone.kinds) == ((tea.id,), {"note": 1})
    view = await store.view(HERE)
    assert view is not None
    assert "tea" not in view.text + file.read_text()
    assert [fact.text for fact in await desk.listing(MINE)] == ["Has a cat"]
    await desk.forget([cat.id], MINE, by=ANN)
    assert not file.exists()
    assert await views.sync() == []
    with pytest.raises(ParleyError, match="no such thing"):
        await desk.forget([], MINE, by=ANN, dedupe="nothing")


async def test_nobody_keeps_another_from_forgetting_by_saying_it_too(desk: MemoryDesk) -> None:
    anns = await told(desk, "Ann lives at Zanzibarweg", place=ROOM)
    await told(desk, "Ann lives at Zanzibarweg", place=ROOM, person=BEN)
    assert [fact.id for fact in await desk.listing(IN_ROOM)] == [anns.id]
    assert (await desk.forget([anns.id], IN_ROOM, by=ANN)).facts == (anns.id,)


async def test_what_an_owner_wrote_is_not_taken_over_by_saying_it_too(desk: MemoryDesk) -> None:
    wrote = await told(desk, "Refunds need a manager", place=ROOM, person="")
    assert (await told(desk, "refunds need a manager", place=ROOM)).id == wrote.id
    assert await desk.listing(IN_ROOM) == []


async def test_nobody_forgets_what_another_said_through_what_took_its_place(
    desk: MemoryDesk, store: SqliteStore
) -> None:
    for user, text in (("ann", "I live in Graz"), ("ben", "Ann lives in Wien now")):
        message = a_message(text)
        source = replace(message.source, user_id=user)
        await store.submit("c1", user, replace(message, source=source))
        await store.commit(await claim_one(store), an_end("I see"))
    seen = await store.session_of("c1")
    assert seen is not None
    said = [entry.id for entry in await store.transcript(seen.id) if entry.message.role == "user"]
    anns = NewFact("Ann lives in Graz", person=ANN, sources=(said[0],))
    await store.remember(ROOM, Edit(adds=(anns,)), by="model", origin="learned")
    [old] = await store.facts([ROOM])
    bens = NewFact("Ann lives in Wien", person=BEN, sources=tuple(said), replaces=(old.id,))
    await store.remember(ROOM, Edit(adds=(bens,)), by="model", origin="learned")
    [new] = await store.facts([ROOM])
    gone = await desk.forget([new.id], Whose((ROOM,), BEN), by=BEN, words=True)
    assert gone.facts == (new.id,)
    assert await store.fact(old.id) is not None
    words = [entry.message.text for entry in await store.transcript(seen.id)]
    assert "I live in Graz" in words
    assert "Ann lives in Wien now" not in words
    # The owner takes all of it, as she does who said it.
    assert (await desk.forget([old.id], IN_ROOM, by=ANN)).facts == (old.id,)


async def test_files_are_written_when_forgetting_was_stopped_before_it(
    store: SqliteStore, tmp_path: Path
) -> None:
    views = Views(tmp_path / "memory", store)
    desk = MemoryDesk(store, views=views)
    tea, _ = await told(desk, "Drinks tea"), await told(desk, "Has a cat")
    await views.sync()
    await store.forget([tea.id], by=ANN, dedupe="c")
    await desk.forget([tea.id], MINE, by=ANN, dedupe="c")
    assert "tea" not in views.file_of(HERE).read_text()


# ── commits ───────────────────────────────────────────────────────────────────────────────────


async def test_a_change_is_listed_shown_and_taken_back(desk: MemoryDesk) -> None:
    fact = await told(desk, "Drinks tea")
    await desk.change(fact.id, "Drinks cocoa", MINE, by=ANN, origin="command")
    newest, oldest = await desk.log(MINE, limit=5)
    assert diff_of(await desk.commit(oldest.id, MINE)) == f"+ [{fact.id}] Drinks tea"
    shown = diff_of(await desk.commit(newest.id, MINE))
    assert shown == f"~ [{fact.id}] Drinks tea → Drinks cocoa"
    undid = await desk.undo(newest.id, MINE, by=ANN)
    assert undid.kind == "undid"
    assert (await desk.fact(fact.id, MINE)).text == "Drinks tea"
    with pytest.raises(ParleyError, match=f"taken back already, by change {undid.id}"):
        await desk.undo(newest.id, MINE, by=ANN)


async def test_what_was_forgotten_cannot_be_taken_back(desk: MemoryDesk) -> None:
    fact = await told(desk, "Drinks tea")
    (added,) = await desk.log(MINE, limit=5)
    gone = await desk.forget([fact.id], MINE, by=ANN)
    with pytest.raises(ParleyError, match="gone for good"):
        await desk.undo(gone.commit.id, MINE, by=ANN)
    with pytest.raises(ParleyError, match="cannot be taken back"):
        await desk.undo(added.id, MINE, by=ANN)


async def test_in_a_chat_each_sees_and_takes_back_only_their_part(
    desk: MemoryDesk, store: SqliteStore
) -> None:
    both = Edit(
        adds=(NewFact("Ann drinks cocoa", person=ANN), NewFact("Ben drinks milk", person=BEN))
    )
    shared = await store.remember(ROOM, both, by="model", origin="learned", kind="learned")
    await told(desk, "Ben sings", place=ROOM, person=BEN)
    own = await told(desk, "Ann sails", place=ROOM)
    mine, theirs = await desk.log(IN_ROOM, limit=5)
    assert theirs.id == shared.id
    assert mine.changes == ()
    assert len(await desk.log(OWNER, limit=9)) == 3
    assert len(await desk.log(IN_ROOM, limit=1)) == 1
    seen = diff_of(await desk.commit(shared.id, IN_ROOM))
    assert "Ann drinks cocoa" in seen
    assert "Ben" not in seen
    with pytest.raises(ParleyError, match="not yours alone"):
        await desk.undo(shared.id, IN_ROOM, by=ANN)
    with pytest.raises(ParleyError, match=f"^There is no change {shared.id} here.$"):
        await desk.commit(shared.id, MINE)
    with pytest.raises(ParleyError, match="There is no change 999 here"):
        await desk.undo(999, IN_ROOM, by=ANN)
    await desk.undo(mine.id, IN_ROOM, by=ANN)
    assert (await desk.fact(own.id, IN_ROOM)).state == "removed"
    await desk.undo(shared.id, OWNER, by="owner")
    assert [fact.text for fact in await desk.listing(OWNER)] == ["Ben sings"]


def test_a_diff_tells_facts_and_the_lines_of_a_summary() -> None:
    one, two = a_fact(3, "Old words"), a_fact(7, "Went")
    changes = (
        Change(12, "added", None, a_fact(12, "New\nline")),
        Change(3, "changed", one, replace(one, text="New words")),
        Change(4, "changed", a_fact(4, "Same"), a_fact(4, "Same", kind="home")),
        Change(5, "merged", a_fact(5, "Again"), replace(a_fact(5, "Again"), confidence=1.0)),
        Change(7, "replaced", two, replace(two, state="replaced", replaced_by=12)),
        Change(8, "removed", a_fact(8, "Gone"), replace(a_fact(8, "Gone"), state="removed")),
        Change(9, "restored", replace(a_fact(9, "Back"), state="removed"), a_fact(9, "Back")),
    )
    summary = ("- They met.\n- They ate.\n", "- They met.\n- --- They slept.\n")
    commit = Commit(1, "folded", HERE, 0.0, "model", "", summary=summary, changes=changes)
    assert diff_of(commit).split("\n") == [
        "+ [12] New line",
        "~ [3] Old words → New words",
        "~ [4] note → home: Same",
        "~ [5] Again (said again)",
        "- [7] Went → [12]",
        "- [8] Gone",
        "+ [9] Back",
        "",
        "Summary:",
        "- - They ate.",
        "+ - --- They slept.",
    ]
    assert diff_of(Commit(1, "archived", HERE, 0.0, "model", "")) == ""


# ── elsewhere ─────────────────────────────────────────────────────────────────────────────────


async def test_what_is_exported_can_be_loaded_elsewhere_and_again(
    desk: MemoryDesk, tmp_path: Path
) -> None:
    await desk.add(HERE, "Drinks tea", kind="taste", by=ANN, person=ANN, origin="tool")
    await told(desk, "Ann sails", place=ROOM)
    await told(desk, "Ben sings", place=ROOM, person=BEN)
    document = json.loads(json.dumps(await desk.export([MINE, IN_ROOM])))
    assert [fact["text"] for fact in document["facts"]] == ["Drinks tea", "Ann sails"]
    assert await desk.export(MINE) == {**document, "facts": document["facts"][:1]}

    other = SqliteStore.open(tmp_path / "other.db")
    try:
        there = MemoryDesk(other)
        assert await there.load(document, None, by="owner") == Imported(added=2)
        assert await there.export([MINE, IN_ROOM]) == document
        made = await other.commits()
        assert str(await there.load(document, None, by="owner")) == "0 new, 2 known already."
        assert await other.commits() == made
        moved = await there.load(document, lambda place: PROFILE, by="owner")
        assert moved.added == 2
        assert len(await there.listing(Whose((PROFILE,)))) == 2
    finally:
        await other.close()


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ([], "no exported memory"),
        ({"facts": []}, "no exported memory"),
        ({"parley_memory": 2, "facts": []}, "newer Parley"),
        ({"parley_memory": 1}, "`facts`: field required."),
        ({"parley_memory": 1, "facts": {}}, "`facts`: "),
        ({"parley_memory": 1, "facts": [{"place": "profile"}]}, "Fact 1, `text`: field required."),
        ({"parley_memory": 1, "facts": [3]}, "Fact 1: "),
        ({"parley_memory": 1, "facts": [{"place": "moon", "text": "x"}]}, "Fact 1: `moon` is no"),
        (
            {"parley_memory": 1, "facts": [{"place": "profile", "text": "x", "confidence": 2}]},
            "Fact 1, `confidence`: ",
        ),
    ],
    ids=[
        "list",
        "unmarked",
        "newer",
        "no-facts",
        "odd-facts",
        "no-text",
        "number",
        "place",
        "sure",
    ],
)
async def test_what_is_no_such_document_is_told_in_a_sentence(
    desk: MemoryDesk, document: object, fault: str
) -> None:
    with pytest.raises(ParleyError) as caught:
        await desk.load(document, None, by="owner")
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_document_is_loaded_without_its_secrets(desk: MemoryDesk) -> None:
    texts = ["Drinks tea", "PIN: 4711", "drinks tea.", "y" * 501]
    facts = [{"place": HERE, "text": text} for text in texts]
    found = await desk.load({"parley_memory": 1, "facts": facts}, None, by="owner")
    assert (found.added, found.known) == (1, 1)
    assert len(found.problems) == 2
    assert "4711" not in str(found)
    assert [fact.text for fact in await desk.listing(MINE)] == ["Drinks tea"]
