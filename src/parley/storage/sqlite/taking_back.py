"""A turn is taken back, in SQL: what was learned from it alone is no longer so."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace

from parley.storage.memory import Fact
from parley.storage.sqlite import commits, facts, memory_rows
from parley.storage.sqlite.commits import Writing
from parley.storage.sqlite.queries import SQL

__all__ = ["take_back"]


def take_back(db: sqlite3.Connection, session: str, turn: int, *, now: float) -> None:
    """What it corrected is so again. Each place has a commit of it, which can be undone."""
    values = {"session": session, "turn": turn}
    found = [memory_rows.fact(row) for row in db.execute(SQL["facts_of_turn"], values)]
    for place in sorted({fact.place for fact in found}):
        writing = Writing("told", place, now, "", "taken back with its message", session)
        for fact in found:
            if fact.place == place:
                _remove(db, writing, fact)
        commits.write(db, writing)


def _remove(db: sqlite3.Connection, writing: Writing, fact: Fact) -> None:
    now = writing.at
    gone = replace(fact, state="removed")
    writing.changes.append(facts.put(db, fact, gone, "removed", now=now))
    values = {"facts": json.dumps([fact.id])}
    for row in db.execute(SQL["facts_replaced_by"], values).fetchall():
        before = memory_rows.fact(row)
        if before.replaced_by != fact.id or facts.known(db, before.place, before.text) is not None:
            continue
        again = replace(before, state="current", replaced_by=None)
        writing.changes.append(facts.put(db, before, again, "restored", now=now))
