"""Facts in SQL: what is remembered, and the small changes that every larger one is made of."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace

from parley.storage.memory import Change, ChangeAction, Fact, FactState, Line, NewFact, Origin
from parley.storage.sqlite import fact_search, memory_rows, rows
from parley.storage.sqlite.queries import SQL
from parley.storage.wording import normal_form

__all__ = [
    "add",
    "get",
    "known",
    "lines_of",
    "listing",
    "put",
    "put_vectors",
    "unembedded",
    "vectors",
    "versions_of",
]


def get(db: sqlite3.Connection, id: int) -> Fact | None:
    row = db.execute(SQL["fact_get"], {"fact": id}).fetchone()
    return None if row is None else memory_rows.fact(row)


def known(db: sqlite3.Connection, place: str, text: str) -> Fact | None:
    """The current fact that says the same."""
    values = {"place": place, "form": normal_form(rows.storable(text))}
    row = db.execute(SQL["fact_known"], values).fetchone()
    return None if row is None else memory_rows.fact(row)


def listing(
    db: sqlite3.Connection,
    places: Sequence[str],
    *,
    person: str | None,
    states: Sequence[FactState],
    limit: int | None,
) -> list[Fact]:
    values = {
        "places": json.dumps(list(dict.fromkeys(places))),
        "states": json.dumps(list(states)),
        "person": person,
        "limit": -1 if limit is None else limit,
    }
    return [memory_rows.fact(row) for row in db.execute(SQL["facts_of_places"], values)]


def versions_of(db: sqlite3.Connection, id: int) -> list[Fact]:
    found = db.execute(SQL["facts_replaced_by"], {"facts": json.dumps([id])})
    return [memory_rows.fact(row) for row in found if row["id"] != id]


def lines_of(db: sqlite3.Connection, id: int) -> list[Line]:
    return [memory_rows.line(row) for row in db.execute(SQL["fact_lines"], {"fact": id})]


# ── changing one ──────────────────────────────────────────────────────────────────────────────


def add(db: sqlite3.Connection, place: str, new: NewFact, origin: Origin, *, now: float) -> Change:
    """One more; nothing current says the same."""
    text = rows.storable(new.text)
    added = db.execute(
        SQL["fact_add"],
        {
            "place": place,
            "kind": rows.storable(new.kind),
            "text": text,
            "form": normal_form(text),
            "confidence": new.confidence,
            "origin": origin,
            "person": rows.storable(new.person),
            "said_at": now if new.said_at is None else new.said_at,
            "at": now,
            "outside": rows.storable(new.outside),
        },
    )
    id = added.lastrowid or 0
    _add_sources(db, id, new.sources)
    fact_search.put(db, id, text)
    return Change(id, "added", None, get(db, id))


def put(
    db: sqlite3.Connection, before: Fact, since: Fact, action: ChangeAction, *, now: float
) -> Change:
    """The fact as it is from now on."""
    text = rows.storable(since.text)
    db.execute(
        SQL["fact_put"],
        {
            "fact": before.id,
            "kind": rows.storable(since.kind),
            "text": text,
            "form": normal_form(text),
            "confidence": since.confidence,
            "origin": since.origin,
            "person": rows.storable(since.person),
            "said_at": since.said_at,
            "at": now,
            "state": since.state,
            "replaced_by": since.replaced_by,
            "outside": rows.storable(since.outside),
        },
    )
    if since.sources != before.sources:
        entries = json.dumps(list(since.sources))
        db.execute(SQL["fact_sources_unused"], {"fact": before.id, "entries": entries})
        _add_sources(db, before.id, since.sources)
    if (before.text, before.state) != (since.text, since.state):
        db.execute(SQL["vectors_drop"], {"fact": before.id})
        fact_search.drop(db, before.id)
        if since.state == "current":
            fact_search.put(db, before.id, text)
    kept = get(db, before.id)
    assert kept is not None
    return Change(before.id, action, before, replace(kept))


def _add_sources(db: sqlite3.Connection, id: int, entries: Sequence[int]) -> None:
    for entry in entries:
        db.execute(SQL["fact_source_add"], {"fact": id, "entry": entry})


# ── vectors ───────────────────────────────────────────────────────────────────────────────────


def unembedded(db: sqlite3.Connection, model: str, *, limit: int) -> list[tuple[int, str]]:
    found = db.execute(SQL["vectors_missing"], {"model": model, "limit": limit})
    return [(row["id"], row["text"]) for row in found]


def put_vectors(db: sqlite3.Connection, model: str, vectors: Mapping[int, bytes]) -> None:
    for id, vector in vectors.items():
        db.execute(SQL["vector_put"], {"fact": id, "model": model, "vector": vector})


def vectors(db: sqlite3.Connection, model: str, places: Sequence[str]) -> list[tuple[int, bytes]]:
    values = {"model": model, "places": json.dumps(list(dict.fromkeys(places)))}
    found = db.execute(SQL["vectors_of_places"], values)
    return [(row["fact"], row["vector"]) for row in found]
