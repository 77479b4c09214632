"""Search in what is remembered, in SQL: an index of the words of current facts."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence

from parley.storage.memory import Fact
from parley.storage.sqlite import memory_rows
from parley.storage.sqlite.queries import SQL
from parley.storage.sqlite.search import PAGES, terms, words_of

__all__ = ["drop", "find", "is_made", "make", "merge", "put"]


def is_made(db: sqlite3.Connection) -> bool:
    return db.execute(SQL["fact_words_is_made"]).fetchone() is not None


def make(db: sqlite3.Connection) -> bool:
    """Make the index and take all in; False where this SQLite was built without it."""
    if is_made(db):
        return True
    try:
        db.execute(SQL["fact_words_make"])
    except sqlite3.OperationalError as error:
        if "no such module" in str(error):
            return False
        raise
    db.execute(SQL["fact_words_fill"])
    return True


def put(db: sqlite3.Connection, id: int, text: str) -> None:
    if is_made(db):
        db.execute(SQL["fact_words_put"], {"fact": id, "text": text})


def drop(db: sqlite3.Connection, id: int) -> None:
    if is_made(db):
        db.execute(SQL["fact_words_drop"], {"fact": id})


def merge(db: sqlite3.Connection, *, begin: bool) -> bool:
    """Let deleted words leave the file, a part at a time; whether more is to be done."""
    if not is_made(db):
        return False
    before = db.total_changes
    db.execute(SQL["fact_words_merge"], {"pages": -PAGES if begin else PAGES})
    return db.total_changes - before >= 2


def find(
    db: sqlite3.Connection, query: str, places: Sequence[str], *, person: str | None, limit: int
) -> list[Fact]:
    words = words_of(query)
    if not words or not places or limit < 1:
        return []
    if not is_made(db):
        return _find_plainly(db, words, places, person=person, limit=limit)
    values = {"places": json.dumps(list(places)), "person": person, "limit": limit}
    found: dict[int, Fact] = {}
    for joined in (" ", " OR "):
        asked = values | {"words": joined.join(terms(words))}
        for row in db.execute(SQL["fact_words_find"], asked):
            found.setdefault(row["id"], memory_rows.fact(row))
    return list(found.values())[:limit]


def _find_plainly(
    db: sqlite3.Connection,
    words: list[str],
    places: Sequence[str],
    *,
    person: str | None,
    limit: int,
) -> list[Fact]:
    values = {
        "places": json.dumps(list(dict.fromkeys(places))),
        "states": '["current"]',
        "person": person,
        "limit": -1,
    }
    wanted = [word.casefold() for word in words]
    found: list[tuple[int, Fact]] = []
    for row in db.execute(SQL["facts_of_places"], values):
        fact = memory_rows.fact(row)
        text = fact.text.casefold()
        held = re.findall(r"\w+", text)
        count = sum(
            word in text if not word.isalnum() else any(w.startswith(word) for w in held)
            for word in wanted
        )
        if count:
            found.append((count, fact))
    found.sort(key=lambda pair: (-pair[0], -pair[1].id))
    return [fact for _, fact in found[:limit]]
