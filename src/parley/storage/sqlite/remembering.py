"""Facts on their way in, in SQL: duplicates become one, and corrections win."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from parley.storage.contract import StoreError
from parley.storage.memory import Commit, CommitKind, Edit, Fact, NewFact, Origin
from parley.storage.sqlite import commits, facts, gone, rows
from parley.storage.sqlite.commits import Writing
from parley.storage.sqlite.outdated import correct_summaries
from parley.storage.sqlite.queries import SQL
from parley.storage.wording import normal_form

__all__ = ["remember", "take_in", "with_sources"]


def remember(
    db: sqlite3.Connection,
    place: str,
    edit: Edit,
    *,
    by: str,
    origin: Origin,
    kind: CommitKind,
    note: str,
    dedupe: str | None,
    turn: int | None,
    now: float,
) -> Commit:
    made = commits.made_under(db, dedupe)
    if made is not None:
        return commits.get(db, made["id"]) or Writing(kind, place, now, by).as_commit()
    if not place:
        raise StoreError("Nothing is remembered here.")
    writing = Writing(kind, place, now, by, note, dedupe=dedupe)
    changed = edit.changes or {}
    replaced = [id for new in (*edit.adds, *changed.values()) for id in new.replaces]
    _require_current(db, place, (*changed, *edit.removes, *replaced))
    said: list[sqlite3.Row] | None = None
    found = None if turn is None else db.execute(SQL["turn_get"], {"turn": turn}).fetchone()
    if found is not None:
        writing.session, said = found["session"], _said_in(db, found)
    for id, new in _in_order(db, changed):
        _change(db, writing, id, _sourced(db, new, said), origin)
    for new in edit.adds:
        gone.recall(db, place, new.text)
        take_in(db, writing, _sourced(db, new, said), origin)
    for id in edit.removes:
        fact = facts.get(db, id)
        if fact is not None and fact.state == "current":
            removed = replace(fact, state="removed")
            writing.changes.append(facts.put(db, fact, removed, "removed", now=now))
    correct_summaries(db, place, writing.changes)
    return commits.write(db, writing)


def _in_order(db: sqlite3.Connection, changed: Mapping[int, NewFact]) -> list[tuple[int, NewFact]]:
    """Each behind the one whose words it takes over, so that the two do not become one.

    Facts that only change places with each other stay as they are: all their words are there.
    """
    held = {_form(fact.text): id for id in changed if (fact := facts.get(db, id)) is not None}
    waits = {id: held.get(_form(new.text), id) for id, new in changed.items()}
    ordered: list[tuple[int, NewFact]] = []
    done: set[int] = set()
    for start in changed:
        path: list[int] = []
        id = start
        while id not in done and id not in path:
            path.append(id)
            id = waits[id]
        circle = path[path.index(id) :] if id in path and waits[id] != id else []
        ordered += [(each, changed[each]) for each in reversed(path) if each not in circle]
        done.update(path)
    return ordered


def _form(text: str) -> str:
    return normal_form(rows.storable(text))


def _said_in(db: sqlite3.Connection, turn: sqlite3.Row) -> list[sqlite3.Row]:
    """What people said in a turn. No entry of an earlier one is behind those of a later one."""
    found = db.execute(SQL["entries_of_late"], {"session": turn["session"]})
    late = takewhile(lambda row: int(row["turn"]) >= turn["id"], found)
    return [row for row in late if row["turn"] == turn["id"] and row["is_said"]][::-1]


def _require_current(db: sqlite3.Connection, place: str, ids: Iterable[int]) -> None:
    for id in ids:
        fact = facts.get(db, id)
        if fact is None or fact.place != place or fact.state != "current":
            raise StoreError(f"There is no fact {id} here that could be changed.")


def _sourced(db: sqlite3.Connection, new: NewFact, said: list[sqlite3.Row] | None) -> NewFact:
    """With what people said in the turn, or those of its sources that are there."""
    if said is None:
        values = {"entries": json.dumps(list(new.sources))}
        said = db.execute(SQL["entries_there"], values).fetchall()
        return replace(new, sources=tuple(row["id"] for row in said))
    return with_sources(new, said, dated=False)


def with_sources(new: NewFact, entries: Sequence[sqlite3.Row], *, dated: bool = True) -> NewFact:
    """A fact that came from these entries, and so from whoever said them all."""
    people = {row["person"] for row in entries}
    person = new.person or (people.pop() if len(people) == 1 else "")
    said_at = new.said_at
    if said_at is None and dated and entries:
        said_at = max(row["at"] for row in entries)
    sources = tuple(row["id"] for row in entries)
    return replace(new, sources=sources, person=person, said_at=said_at)


def take_in(db: sqlite3.Connection, writing: Writing, new: NewFact, origin: Origin) -> None:
    """Add it, or make it one with what says the same; what it replaces is no longer current.

    What is older than what it would replace is left out.
    """
    now, place = writing.at, writing.place
    if not new.text.strip():
        return
    new = replace(new, said_at=now if new.said_at is None else new.said_at)
    known = facts.known(db, place, new.text)
    replaced = _replaced(db, place, new, but=known)
    newer = [fact for fact in replaced if fact.said_at > (new.said_at or now)]
    if known is not None:
        kept = known.id
        _merge(db, writing, known, new)
        replaced = [fact for fact in replaced if fact not in newer]
    elif newer:
        return
    else:
        added = facts.add(db, place, new, origin, now=now)
        writing.changes.append(added)
        kept = added.fact
    for fact in replaced:
        since = replace(fact, state="replaced", replaced_by=kept)
        writing.changes.append(facts.put(db, fact, since, "replaced", now=now))


def _replaced(db: sqlite3.Connection, place: str, new: NewFact, *, but: Fact | None) -> list[Fact]:
    found = (facts.get(db, id) for id in dict.fromkeys(new.replaces))
    return [
        fact
        for fact in found
        if fact is not None
        and fact.place == place
        and fact.state == "current"
        and (but is None or fact.id != but.id)
    ]


def _merge(db: sqlite3.Connection, writing: Writing, known: Fact, new: NewFact) -> None:
    merged = replace(
        known,
        confidence=max(known.confidence, new.confidence),
        sources=tuple(sorted({*known.sources, *new.sources})),
        said_at=max(known.said_at, writing.at if new.said_at is None else new.said_at),
        outside=known.outside if new.outside else "",
    )
    if merged != known:
        writing.changes.append(facts.put(db, known, merged, "merged", now=writing.at))


def _change(
    db: sqlite3.Connection, writing: Writing, id: int, new: NewFact, origin: Origin
) -> None:
    """Other words for a fact; where those are known already, the two become one."""
    now, place = writing.at, writing.place
    fact = facts.get(db, id)
    if fact is None or fact.state != "current" or not new.text.strip():
        return
    gone.recall(db, place, new.text)
    known = facts.known(db, place, new.text)
    sources = tuple(sorted({*fact.sources, *new.sources}))
    said_at = now if new.said_at is None else new.said_at
    if known is not None and known.id != id:
        person = new.person or fact.person
        _merge(db, writing, known, replace(new, sources=sources, person=person, said_at=said_at))
        since = replace(fact, state="replaced", replaced_by=known.id)
        writing.changes.append(facts.put(db, fact, since, "replaced", now=now))
        return
    changed = replace(
        fact,
        kind=rows.storable(new.kind),
        text=rows.storable(new.text),
        confidence=new.confidence,
        origin=origin,
        person=new.person or fact.person,
        said_at=said_at,
        sources=sources,
        outside=new.outside,
    )
    writing.changes.append(facts.put(db, fact, changed, "changed", now=now))
    for other in _replaced(db, place, new, but=fact):
        since = replace(other, state="replaced", replaced_by=id)
        writing.changes.append(facts.put(db, other, since, "replaced", now=now))
