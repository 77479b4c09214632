"""Which sessions wait to be tended, what was said in them, and how far they are."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

from parley.protocol import ChatMessage, Usage
from parley.storage.contract import NewSession, TurnEnd, UndoTurn
from parley.storage.hands import Limit, Payer, Spent
from parley.storage.memory import NewFact
from parley.storage.sqlite import SqliteStore
from parley.storage.sqlite.migrate import migrate, migrations
from parley.storage.sqlite.queries import SQL
from tests.builders import PLATFORM, a_draft, a_message, say
from tests.storage.conformance.base import claim_one, command, converse, current, spoken
from tests.storage.tending import ALICE, a_fold, learn, made, source, talk, tended, texts

_LATER = 9e9


async def test_a_session_is_in_line_when_a_turn_begins_in_it(store: SqliteStore) -> None:
    await say(store, "hello")
    assert await store.untended(_LATER) == []
    began = time.time()
    claim = await claim_one(store)
    [waiting] = await store.untended(_LATER)
    assert (waiting.id, waiting.key) == (claim.session, "c1")
    assert waiting.source == claim.source
    assert waiting.person == "test:user-of-c1"
    assert (waiting.last, waiting.summary, waiting.place) == (1, "", None)
    assert waiting.seen.tend_at is not None
    assert began <= waiting.seen.tend_at <= time.time()
    assert await store.untended(began) == []
    await store.put_note(claim.session, "memory", ALICE)
    assert (await tended(store)).place == ALICE


async def test_those_that_wait_longest_come_first(store: SqliteStore) -> None:
    seen = [await talk(store, f"in {chat}", chat=chat) for chat in ("c1", "c2", "c3")]
    ids = [waiting.id for waiting in seen]
    assert [waiting.id for waiting in await store.untended(_LATER)] == ids
    assert [waiting.id for waiting in await store.untended(_LATER, limit=2)] == ids[:2]
    first, *_ = await store.untended(_LATER, limit=1)
    assert [waiting.id for waiting in await store.untended(_LATER, behind=first)] == ids[1:]
    found = await store.untended(_LATER, without=ids[:1])
    assert [waiting.id for waiting in found] == ids[1:]
    await talk(store, "again", chat="c1")
    assert [waiting.id for waiting in await store.untended(_LATER)] == [*ids[1:], ids[0]]


async def test_delegated_tasks_are_never_in_line(store: SqliteStore) -> None:
    await say(store, "do it", platform="task")
    [claim] = await store.claim("one", 1, ["task"])
    await store.commit(claim, TurnEnd("done"))
    assert await store.untended(_LATER) == []


async def test_a_session_leaves_the_line_unless_a_turn_began_since(store: SqliteStore) -> None:
    seen = await talk(store, "hello")
    assert await store.put_off(seen.id, seen.seen, 4e9 + 60)
    assert await store.untended(4e9) == []
    assert not await store.put_off(seen.id, seen.seen, None)
    seen = await tended(store)
    await talk(store, "hello again")
    assert not await store.put_off(seen.id, seen.seen, None)
    seen = await tended(store)
    assert seen.seen.tend_at is not None and seen.seen.tend_at < 4e9
    assert await store.put_off(seen.id, seen.seen, None)
    assert await store.untended(_LATER) == []
    assert await store.put_off(seen.id, (await tended(store)).seen, 1.0)
    assert len(await store.untended(_LATER)) == 1
    assert not await store.put_off("nobody", seen.seen, None)


async def test_a_session_does_not_leave_the_line_while_a_turn_runs(store: SqliteStore) -> None:
    await say(store, "hello")
    claim = await claim_one(store)
    seen = (await tended(store)).seen
    assert not await store.put_off(claim.session, seen, None)
    await store.commit(claim, TurnEnd("done"))
    # It was looked at before that turn could be seen: someone has to look again.
    assert not await store.put_off(claim.session, seen, None)
    assert await store.put_off(claim.session, (await tended(store)).seen, None)


async def test_what_it_costs_to_find_them_does_not_grow(store: SqliteStore) -> None:
    """Counted in steps of the database's own machine, not in time."""

    async def steps() -> int:
        counted = 0

        def count() -> None:
            nonlocal counted
            counted += 1

        await store._engine.read(lambda db: db.set_progress_handler(count, 1))
        assert len(await store.untended(_LATER, limit=10)) == 10
        await store._engine.read(lambda db: db.set_progress_handler(None, 0))
        return counted

    def add(db: sqlite3.Connection, first: int, count: int, tend_at: float | None) -> None:
        source = '{"platform":"test","chat_id":"c"}'
        numbers = range(first, first + count)
        db.executemany(
            "INSERT INTO session (id, lane, created_at, updated_at, tend_at)"
            " VALUES ('s' || ?, 'c', 1, 1, ?)",
            [(number, tend_at) for number in numbers],
        )
        db.executemany(
            "INSERT INTO turn (id, lane, session, generation, attempt, state, source, started_at)"
            " VALUES (?, 'c', 's' || ?, 0, 1, 'done', ?, 1)",
            [(number, number, source) for number in numbers],
        )
        db.executemany(
            "INSERT INTO entry (session, turn, body, at) VALUES ('s' || ?, ?, '{}', 1)",
            [(number, number) for number in numbers],
        )

    await store.tended("nobody")
    await store._engine.write(lambda db: add(db, 1, 10, 1.0))
    few = await steps()
    await store._engine.write(lambda db: add(db, 11, 5000, None))
    assert await steps() == few
    await store._engine.write(lambda db: add(db, 5011, 500, _LATER + 60))
    assert await steps() <= few * 1.1
    plan = await store._engine.read(
        lambda db: db.execute(
            f"EXPLAIN QUERY PLAN {SQL['sessions_untended']}",
            {"now": 1, "beyond": 2, "limit": 1, "without": "[]", "at": -1, "id": ""},
        ).fetchall()
    )
    assert "session_untended" in plan[0]["detail"]


# ── lines ─────────────────────────────────────────────────────────────────────────────────────


async def _lines(store: SqliteStore, **asked: int) -> list[str]:
    found = await store.lines((await current(store)).id, **{"after": 0, **asked})
    return [line.message.text for line in found]


async def test_lines_are_what_was_said_in_turns_that_count(store: SqliteStore) -> None:
    await talk(store, "one", "two")
    await command(store, UndoTurn(), text="/undo")
    await talk(store, "three")
    await say(store, "four")
    claim = await claim_one(store)
    assert await _lines(store) == ["one", "so: one", "three", "so: three"]
    await store.commit(claim, TurnEnd("done"))
    assert (await _lines(store))[-1] == "four"
    first = await source(store, "so: one")
    assert await _lines(store, after=first, upto=first + 4) == ["three", "so: three"]
    found = await store.lines(claim.session, after=0)
    assert {line.person for line in found} == {"test:user-of-c1"}
    assert [line.id for line in found] == sorted(line.id for line in found)


async def test_lines_are_whole_turns_within_a_size(store: SqliteStore) -> None:
    await talk(store, "a" * 100, "b" * 100, "c" * 100)
    assert len(await _lines(store, most_bytes=1)) == 2
    assert len(await _lines(store, most_bytes=600)) == 4
    assert len(await _lines(store, most_bytes=6000)) == 6
    assert await _lines(store, after=99) == []


async def test_what_was_posted_during_a_turn_stays_with_it(store: SqliteStore) -> None:
    """All entries up to the last line are among the lines, or learning would skip some."""
    await say(store, "one")
    claim = await claim_one(store)
    await store.post("c1", a_draft("posted"), said=spoken("posted"))
    await store.commit(claim, TurnEnd("done", (spoken("reply"),)))
    await talk(store, "two")
    found = await store.lines(claim.session, after=0, most_bytes=1)
    assert [line.message.text for line in found] == ["one", "reply", "posted"]
    assert {line.id for line in found} == {1, 2, 3}


# ── what was made of it ───────────────────────────────────────────────────────────────────────


async def test_a_fold_moves_the_window_with_its_facts(store: SqliteStore) -> None:
    seen = await talk(store, "I like tea", "hello", "bye")
    keep_from = await source(store, "bye")
    fact = NewFact("Likes tea", "preference", 0.8, (1,))
    fold = a_fold(seen, fact, keep_from=keep_from, summary="They spoke of tea.")
    fold = replace(fold, first=1, last=4, by="model", note="by tokens")
    commit = await store.consolidate(fold)
    assert commit is not None
    assert (commit.kind, commit.place, commit.session) == ("folded", ALICE, seen.id)
    assert (commit.folded, commit.summary) == ((0, keep_from), ("", "They spoke of tea."))
    assert (commit.first, commit.last, commit.by, commit.note) == (1, 4, "model", "by tokens")
    assert commit.added == 1
    since = await tended(store)
    assert (since.window_start, since.seen.folded, since.seen.learned) == (keep_from, keep_from, 6)
    assert since.seen.revision == seen.seen.revision + 1
    assert since.seen.tend_at == seen.seen.tend_at
    recalled = await store.recall(seen.id, places=["profile", ALICE])
    assert recalled.summary == since.summary == "They spoke of tea."
    assert recalled.versions == (0, 1)
    assert [entry.message.text for entry in recalled.entries] == ["bye", "so: bye"]
    assert len(await store.transcript(seen.id, whole=True)) == 6
    [learned] = await store.facts([ALICE])
    assert (learned.text, learned.kind, learned.confidence) == ("Likes tea", "preference", 0.8)
    assert (learned.sources, learned.session, learned.origin) == ((1,), seen.id, "learned")
    assert learned.person == "test:user-of-c1"
    assert [line.message.text for line in await store.sources_of(learned.id)] == ["I like tea"]
    assert learned.said_at == (await store.sources_of(learned.id))[0].at


async def test_a_window_cut_in_a_hurry_is_not_pulled_back(store: SqliteStore) -> None:
    seen = await talk(store, "one", "two", "three")
    await store.move_window(seen.id, 5)
    assert await store.consolidate(made(seen)) is None
    seen = await tended(store)
    assert (seen.window_start, seen.seen.folded) == (5, 0)
    await store.consolidate(a_fold(seen, keep_from=3, summary="one"))
    since = await tended(store)
    assert (since.window_start, since.seen.folded) == (5, 3)


@pytest.mark.parametrize("since", ["undo", "window", "learned", "folded", "running", "deleted"])
async def test_nothing_is_stored_when_the_session_is_another(
    store: SqliteStore, since: str
) -> None:
    seen = await talk(store, "one", "two")
    late = a_fold(seen, NewFact("Fact", sources=(1,)), keep_from=3, summary="Sum.")
    match since:
        case "undo":
            await command(store, UndoTurn(), text="/undo")
        case "window":
            await store.move_window(seen.id, 3)
        case "learned":
            assert await store.consolidate(made(seen)) is not None
        case "folded":
            assert await store.consolidate(a_fold(seen, keep_from=3, summary="x")) is not None
        case "running":
            await say(store, "three")
            await claim_one(store)
        case "deleted":
            await store.delete_session(seen.id)
    before = await store.tended(seen.id)
    assert await store.consolidate(late) is None
    assert await texts(store) == []
    assert await store.tended(seen.id) == before


async def test_what_was_said_since_does_not_keep_it_from_being_stored(store: SqliteStore) -> None:
    seen = await talk(store, "one")
    await talk(store, "two")
    assert await store.consolidate(made(seen, NewFact("One", sources=(1,)))) is not None
    since = await tended(store)
    assert (since.seen.learned, since.last) == (2, 4)
    assert (await store.lines(seen.id, after=2))[0].message.text == "two"


async def test_a_lane_that_goes_on_elsewhere_is_waited_for_too(store: SqliteStore) -> None:
    seen = await talk(store, "one")
    await command(store, NewSession(), text="/new")
    await say(store, "two")
    claim = await claim_one(store)
    assert claim.session != seen.id
    assert await store.consolidate(made(seen)) is None
    await store.commit(claim, TurnEnd("done"))
    assert await store.consolidate(made(seen)) is not None


async def test_learning_nothing_moves_the_offset_and_leaves_no_commit(store: SqliteStore) -> None:
    seen = await talk(store, "one")
    commit = await store.consolidate(made(seen))
    assert commit is not None and commit.id == 0
    assert await store.commits() == []
    assert (await tended(store)).seen.learned == seen.last
    assert await store.place_versions([ALICE]) == (0,)
    archived = await store.consolidate(made(await tended(store), kind="archived"))
    assert archived is not None
    assert [commit.kind for commit in await store.commits()] == ["archived"]


async def test_no_offset_is_behind_the_last_entry_or_goes_back(store: SqliteStore) -> None:
    seen = await talk(store, "one", "two")
    await store.consolidate(replace(made(seen), learned=99))
    seen = await tended(store)
    assert seen.seen.learned == 4
    await store.consolidate(replace(made(seen), learned=1))
    assert (await tended(store)).seen.learned == 4


async def test_a_fact_stands_on_what_was_said_since_the_last_time(store: SqliteStore) -> None:
    await talk(store, "one", chat="c2")
    await talk(store, "one", "two")
    own = await source(store, "one")
    await learn(store, NewFact("First", sources=(own,)))
    await talk(store, "three", "gone")
    await command(store, UndoTurn(), text="/undo")
    new, gone = await source(store, "three"), await source(store, "three") + 2
    await learn(
        store,
        NewFact("Old", sources=(own,)),
        NewFact("Of another", sources=(1,)),
        NewFact("Of an undone turn", sources=(gone,)),
        NewFact("Of nothing"),
        NewFact("New", sources=(own, 1, new, gone, 999)),
    )
    assert await texts(store) == ["First", "New"]
    [_, found] = await store.facts([ALICE])
    assert found.sources == (new,)


async def test_nothing_is_learned_nowhere(store: SqliteStore) -> None:
    seen = await talk(store, "one", "two")
    fold = a_fold(seen, NewFact("A fact", sources=(1,)), keep_from=3, summary="Sum.")
    assert await store.consolidate(replace(fold, place="")) is not None
    assert await store.facts([""]) == []
    assert (await tended(store)).summary == "Sum."


async def test_its_model_calls_are_counted_but_for_nobodys_plan(store: SqliteStore) -> None:
    payer = Payer("test:user-of-c1", "")
    claim = await converse(store, "one", "reply")
    seen = await tended(store)
    payer = replace(payer, session=seen.id)
    limits = [Limit(whose, "day", 0.0, 9e9) for whose in ("profile", "user", "session")]
    assert await store.spent(payer, limits) == [Spent(0)] * 3
    calls = (Usage("p", "m", 10, 5, micros=7), Usage("p", "m", 20, 5, cached_tokens=9))
    assert await store.consolidate(replace(made(seen), usage=calls)) is not None
    assert await store.spent(payer, limits) == [Spent(40, 7), Spent(0), Spent(40, 7)]
    anew = [replace(limit, since=1.0) for limit in limits]
    assert await store.spent(payer, anew) == [Spent(40, 7), Spent(0), Spent(40, 7)]
    record = await current(store)
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (30, 10, 9)
    result = await store.turn_result(claim.messages[0].message.event_id or "")
    assert result is None or result.usage is None
    late = await store.consolidate(replace(made(seen), usage=calls))
    assert late is None
    assert (await current(store)).input_tokens == 30


async def test_a_turns_own_cost_is_without_what_housekeeping_did(store: SqliteStore) -> None:
    await store.submit("c1", "asked", a_message("hello"))
    claim = await claim_one(store)
    await store.commit(claim, TurnEnd("done", (spoken("hi"),), usage=Usage("p", "m", 1, 2)))
    usage = (Usage("p", "m", 100, 100),)
    assert await store.consolidate(replace(made(await tended(store)), usage=usage)) is not None
    result = await store.turn_result("asked")
    assert result is not None and result.usage == Usage("p", "m", 1, 2)


# ── upgrades and renames ──────────────────────────────────────────────────────────────────────


async def test_an_upgrade_puts_no_session_in_line(tmp_path: Path) -> None:
    """Nothing that was said before is learned or summarised, and nothing twice."""
    file = tmp_path / "parley.db"
    migrate(file, {number: script for number, script in migrations().items() if number <= 5})
    source = f'{{"platform":"{PLATFORM}","chat_id":"c1","chat_type":"dm"}}'
    with sqlite3.connect(file) as db:
        db.execute(
            "INSERT INTO session (id, lane, window_start, created_at, updated_at)"
            " VALUES ('s', 'c1', 2, 1, 1), ('empty', 'c1', 0, 1, 1)"
        )
        db.execute(
            "INSERT INTO lane (key, platform, session, state) VALUES ('c1', ?, 's', 'idle')",
            (PLATFORM,),
        )
        db.execute(
            "INSERT INTO turn (id, lane, session, generation, attempt, state, source, started_at)"
            " VALUES (1, 'c1', 's', 0, 1, 'done', ?, 1)",
            (source,),
        )
        for number in (1, 2, 3):
            body = f'{{"role":"user","text":"{number}"}}'
            db.execute("INSERT INTO entry VALUES (?, 's', 1, ?, 1)", (number, body))
    db.close()
    store = SqliteStore.open(file)
    assert await store.untended(_LATER) == []
    seen = await store.tended("s")
    assert seen is not None
    assert (seen.seen.learned, seen.seen.folded, seen.window_start) == (3, 2, 2)
    assert (seen.summary, seen.person, seen.seen.tend_at) == ("", "", None)
    assert await store.tended("empty") is None
    await say(store, "new")
    await store.commit(await claim_one(store), TurnEnd("done"))
    [waiting] = await store.untended(_LATER)
    new = await store.lines("s", after=waiting.seen.learned)
    assert [line.message for line in new] == [ChatMessage("user", "new")]
    await store.close()


async def test_a_rename_leaves_what_is_remembered(store: SqliteStore) -> None:
    lane = "agent:main:test:dm:c1"
    await store.submit(lane, "one", a_message("hello"))
    claim = await claim_one(store)
    await store.commit(claim, TurnEnd("done"))
    seen = await store.tended(claim.session)
    assert seen is not None
    await store.consolidate(made(seen, NewFact("Says hello", sources=(1,))))
    assert await store.adopt("other") == 1
    assert await texts(store) == ["Says hello"]
    [waiting] = await store.untended(_LATER)
    assert waiting.key == "agent:other:test:dm:c1"


async def test_what_was_said_before_a_place_was_given_is_not_for_that_place(
    store: SqliteStore,
) -> None:
    await talk(store, "said without a key")
    await say(store, "said under a key")
    claim = await claim_one(store)
    await store.remember_at(claim.session, claim.turn, ALICE)
    await store.commit(claim, TurnEnd("done"))
    before, since = [await source(store, f"said {how} a key") for how in ("without", "under")]
    assert before <= (await tended(store)).seen.learned < since
