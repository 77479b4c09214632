"""Commits in SQL: what changed in what is remembered, written and read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from parley.storage.memory import Change, Commit, CommitKind
from parley.storage.sqlite import memory_rows, rows
from parley.storage.sqlite.queries import SQL

__all__ = ["Writing", "get", "listing", "made_under", "write"]

_BEYOND = 2**62
_ADDS = frozenset({"added", "restored"})
_REMOVES = frozenset({"removed", "replaced"})


@dataclass(slots=True)
class Writing:
    """A commit on its way in: the changes that belong to it are gathered here."""

    kind: CommitKind
    place: str
    at: float
    by: str
    note: str = ""
    session: str | None = None
    first: int | None = None
    last: int | None = None
    folded: tuple[int, int] | None = None
    summary: tuple[str, str] | None = None
    window_before: int | None = None
    forgotten: dict[str, Any] | None = None
    dedupe: str | None = None
    changes: list[Change] = field(default_factory=list)

    @property
    def added(self) -> int:
        return sum(change.action in _ADDS for change in self.changes)

    @property
    def removed(self) -> int:
        gone = 0 if self.forgotten is None else sum(self.forgotten["kinds"].values())
        return gone + sum(change.action in _REMOVES for change in self.changes)

    def as_commit(self, id: int = 0) -> Commit:
        return Commit(
            id=id,
            kind=self.kind,
            place=self.place,
            at=self.at,
            by=self.by,
            note=self.note,
            session=self.session,
            first=self.first,
            last=self.last,
            folded=self.folded,
            summary=self.summary,
            added=self.added,
            removed=self.removed,
            changes=tuple(self.changes),
        )


def write(db: sqlite3.Connection, writing: Writing) -> Commit:
    """Keep it. The places whose facts changed are of another version."""
    before, since = writing.folded or (None, None)
    summary_before, summary_since = writing.summary or (None, None)
    added = db.execute(
        SQL["memory_commit_add"],
        {
            "kind": writing.kind,
            "place": writing.place,
            "at": writing.at,
            "by": rows.storable(writing.by),
            "note": rows.storable(writing.note),
            "session": writing.session,
            "first": writing.first,
            "last": writing.last,
            "folded_before": before,
            "folded_since": since,
            "window_before": writing.window_before,
            "summary_before": summary_before,
            "summary_since": summary_since,
            "added": writing.added,
            "removed": writing.removed,
            "forgotten": None if writing.forgotten is None else rows.dump(writing.forgotten),
            "dedupe": writing.dedupe,
        },
    )
    number = added.lastrowid or 0
    for change in writing.changes:
        db.execute(
            SQL["memory_change_add"],
            {
                "commit": number,
                "fact": change.fact,
                "action": change.action,
                "before": memory_rows.dump_fact(change.before),
                "after": memory_rows.dump_fact(change.after),
            },
        )
    if writing.changes:
        db.execute(SQL["place_change"], {"place": writing.place})
    return writing.as_commit(number)


def made_under(db: sqlite3.Connection, dedupe: str | None) -> sqlite3.Row | None:
    """What was done under this name already."""
    if dedupe is None:
        return None
    row: sqlite3.Row | None = db.execute(SQL["memory_commit_once"], {"dedupe": dedupe}).fetchone()
    return row


def get(db: sqlite3.Connection, id: int) -> Commit | None:
    row = db.execute(SQL["memory_commit_get"], {"commit": id}).fetchone()
    if row is None:
        return None
    found = db.execute(SQL["memory_changes"], {"commit": id}).fetchall()
    changes = tuple(memory_rows.change(db, change) for change in found)
    return replace(memory_rows.commit(row), changes=changes)


def listing(
    db: sqlite3.Connection,
    *,
    places: Sequence[str] | None,
    session: str | None,
    fact: int | None,
    limit: int,
    before: int | None,
) -> list[Commit]:
    query = "memory_commits"
    if fact is not None:
        query = "memory_commits_of_fact"
    elif session is not None:
        query = "memory_commits_of_session"
    elif places is not None:
        query = "memory_commits_of_places"
    values = {
        "places": None if places is None else json.dumps(list(dict.fromkeys(places))),
        "session": session,
        "fact": fact,
        "limit": limit,
        "before": _BEYOND if before is None else before,
    }
    return [memory_rows.commit(row) for row in db.execute(SQL[query], values)]
