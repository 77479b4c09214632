"""What a store and its files say when all is over; nothing when all is well."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from parley.memory.view_text import render
from parley.memory.views import Views
from parley.storage.memory import Fact
from parley.storage.sqlite.store import SqliteStore
from parley.storage.wording import normal_form
from tests.gateway.memory_house import PEOPLE, MemoryHouse

__all__ = ["judge"]


async def judge(
    house: MemoryHouse, store: SqliteStore, errands: Mapping[str, Path]
) -> tuple[int, list[str]]:
    """How many facts there are, and what is wrong. `errands`: what a hand wrote, and where."""
    faults = [*_messages(house), *_offsets(house), *_ledger(house)]
    places = sorted({person.place for person in PEOPLE})
    facts = await store.facts(places)
    views = Views(house.folder, store)
    wanted = Counter(
        (person.place, words.form) for person, words in house.planted.values()
    ) + Counter(
        (place, normal_form(errand))
        for errand, file in errands.items()
        for place in places
        if views.file_of(place) == file
    )
    there_are = Counter((fact.place, normal_form(fact.text)) for fact in facts)
    faults += [f"lost: {fact}" for fact in (wanted - there_are)]
    faults += [f"doubled, or not said there: {fact}" for fact in (there_are - wanted)]
    faults += _receipts(house, facts)
    expected = {
        views.file_of(place): render(place, [fact for fact in facts if fact.place == place])
        for place in places
    }
    there = {file: file.read_text() for file in house.folder.rglob("*") if file.is_file()}
    faults += [
        f"{file} is not as the store has it" if file in expected else f"{file} was left behind"
        for file in expected.keys() | there.keys()
        if expected.get(file) != there.get(file)
    ]
    if house.read("PRAGMA integrity_check") != [("ok",)]:
        faults.append("the database file is damaged")
    return len(facts), faults


def _messages(house: MemoryHouse) -> Iterator[str]:
    answers = house.answers()
    yield from (f"{id} has {answers[id]} answers" for id in house.planted if answers[id] != 1)
    entries = house.read("SELECT body FROM entry")
    said = Counter(json.loads(body)["text"] for (body,) in entries if '"user"' in body)
    for _, words in house.planted.values():
        count = sum(times for text, times in said.items() if words.text in text)
        if count != 1:
            yield f"{words.id} is {count} times in the transcript"
    for table, good in (("inbox", "done"), ("outbox", "sent"), ("turn", "done"), ("lane", "idle")):
        for state, count in house.read(f"SELECT state, count(*) FROM {table} GROUP BY state"):
            if state != good:
                yield f"{count} × {table} is {state}"


def _receipts(house: MemoryHouse, facts: Sequence[Fact]) -> Iterator[str]:
    """Each learned fact was added once, by a commit about the one message that says so."""
    said = {words.form: (person.name, words.text) for person, words in house.planted.values()}
    changes = house.read(
        "SELECT c.fact, c.action, m.kind, m.first, m.last"
        " FROM memory_change c JOIN memory_commit m ON m.id = c.commit_id"
    )
    for fact in facts:
        form = normal_form(fact.text)
        if form not in said:
            continue
        who, text = said[form]
        bodies = [house.read("SELECT body FROM entry WHERE id = ?", id) for id in fact.sources]
        if len(bodies) != 1 or not bodies[0] or text not in json.loads(bodies[0][0][0])["text"]:
            yield f"[{fact.id}] has other sources than its message: {fact.sources}"
            continue
        if fact.person != f"webhook:{who}":
            yield f"[{fact.id}] is said to be of {fact.person}"
        made = [change for change in changes if change[0] == fact.id]
        if [(action, kind) for _, action, kind, _, _ in made] not in (
            [("added", "learned")],
            [("added", "folded")],
        ):
            yield f"[{fact.id}] was changed: {made}"
        elif not made[0][3] <= fact.sources[0] <= made[0][4]:
            yield f"[{fact.id}] is not of the part its commit is about"


def _offsets(house: MemoryHouse) -> Iterator[str]:
    """Every entry was learned from, and folded at most once, one part behind the other."""
    for session, learned, folded, window, summary, last in house.read(
        "SELECT id, learned, folded, window_start, summary,"
        " (SELECT max(id) FROM entry WHERE session = session.id) FROM session"
    ):
        if learned != last or folded > window or window > last:
            yield f"{session} stands at {learned=} {folded=} {window=} {last=}"
        lines = summary.splitlines()
        if len(lines) != len(set(lines)):
            yield f"the summary of {session} says something twice: {summary}"
        commits = house.read(
            "SELECT kind, first, last, folded_before, folded_since FROM memory_commit"
            " WHERE session = ? ORDER BY id",
            session,
        )
        learnt = [(first, end) for kind, first, end, *_ in commits if kind == "learned"]
        folds = [(before, since) for *_, before, since in commits if since is not None]
        if any(later[0] <= earlier[1] for earlier, later in itertools.pairwise(learnt)):
            yield f"parts of {session} were learned from twice: {learnt}"
        if any(later[0] != earlier[1] for earlier, later in itertools.pairwise(folds)):
            yield f"folds of {session} leave gaps or overlap: {folds}"
        if folds and (folds[0][0] != 0 or folds[-1][1] != folded):
            yield f"folds of {session} do not reach from its beginning to {folded}: {folds}"


def _ledger(house: MemoryHouse) -> Iterator[str]:
    """What a stored commit cost was counted with it, once. What is archived may cost nothing."""
    made = house.read(
        "SELECT m.id, m.kind, (SELECT count(*) FROM usage u"
        " WHERE u.session = m.session AND u.at = m.at AND u.user IS NULL)"
        " FROM memory_commit m WHERE m.kind IN ('learned', 'folded', 'archived')"
    )
    for id, kind, count in made:
        if count != 1 and kind != "archived":
            yield f"commit {id} was {kind}, with {count} calls"
    [(apart,)] = house.read("SELECT count(*) FROM usage WHERE user IS NULL")
    if apart != sum(count for *_, count in made):
        yield f"{apart} calls were counted for {len(made)} commits"
