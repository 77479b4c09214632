"""Between rows and what is said of memory in the contract."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from typing import Any

from parley.protocol import ChatMessage
from parley.storage.memory import Change, Commit, Fact, Line, Seen, Tended
from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL

__all__ = ["change", "commit", "dump_fact", "fact", "line", "tended"]


def fact(row: sqlite3.Row) -> Fact:
    return Fact(
        id=row["id"],
        place=row["place"],
        kind=row["kind"],
        text=row["text"],
        confidence=row["confidence"],
        origin=row["origin"],
        person=row["person"],
        said_at=row["said_at"],
        at=row["at"],
        sources=tuple(sorted(json.loads(row["sources"]))),
        session=row["session"],
        state=row["state"],
        replaced_by=row["replaced_by"],
        outside=row["outside"],
    )


def dump_fact(fact: Fact | None) -> str | None:
    """As a commit keeps it. Its session is that of its sources, which may be deleted."""
    if fact is None:
        return None
    return rows.dump(
        {
            "place": fact.place,
            "kind": fact.kind,
            "text": fact.text,
            "confidence": fact.confidence,
            "origin": fact.origin,
            "person": fact.person,
            "said_at": fact.said_at,
            "at": fact.at,
            "sources": list(fact.sources),
            "state": fact.state,
            "replaced_by": fact.replaced_by,
            "outside": fact.outside,
        }
    )


def change(db: sqlite3.Connection, row: sqlite3.Row) -> Change:
    id: int = row["fact"]
    return Change(id, row["action"], _kept(db, id, row["before"]), _kept(db, id, row["after"]))


def _kept(db: sqlite3.Connection, id: int, body: str | None) -> Fact | None:
    if body is None:
        return None
    record: dict[str, Any] = json.loads(body)
    sources = tuple(record.pop("sources"))
    found = Fact(id=id, sources=sources, **record)
    if not sources:
        return found
    entry = db.execute(SQL["entry_session"], {"entry": sources[-1]}).fetchone()
    return found if entry is None else replace(found, session=entry["session"])


def commit(row: sqlite3.Row) -> Commit:
    is_fold = row["folded_since"] is not None
    return Commit(
        id=row["id"],
        kind=row["kind"],
        place=row["place"],
        at=row["at"],
        by=row["by"],
        note=row["note"],
        session=row["session"],
        first=row["first"],
        last=row["last"],
        folded=(row["folded_before"], row["folded_since"]) if is_fold else None,
        summary=(row["summary_before"], row["summary_since"]) if is_fold else None,
        undone_by=row["undone_by"],
        added=row["added"],
        removed=row["removed"],
    )


def line(row: sqlite3.Row) -> Line:
    message = ChatMessage.from_dict(json.loads(row["body"]))
    return Line(row["id"], row["turn"], message, row["at"], row["person"])


def tended(row: sqlite3.Row) -> Tended:
    return Tended(
        id=row["id"],
        key=row["lane"],
        source=rows.source(row["source"]),
        person=row["person"],
        place=row["place"],
        provider=row["provider"],
        model=row["model"],
        window_start=row["window_start"],
        last=row["last"],
        summary=row["summary"],
        seen=Seen(
            row["revision"],
            row["learned"],
            row["folded"],
            row["tend_at"],
            in_turn=bool(row["in_turn"]),
        ),
        outside=row["outside"],
    )
