"""Sessions and transcripts in SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from parley.storage.contract import Entry, Recall, SessionRecord
from parley.storage.sqlite import forgetting, lanes, memory_places, rows, search
from parley.storage.sqlite.queries import SQL

__all__ = ["by_prefix", "current", "delete", "listing", "recall", "transcript"]

_FAR_FUTURE = 1e12
# Each while what it is found by is still there.
_FORGOTTEN = (
    "request_events",
    "request_items",
    "conversation_items",
    "requests",
    "inbox",
    "aside",
    "outbox",
    "usage",
    "charged",
    "spend",
    "works",
    "questions",
    "permits",
    "notes",
    "chats",
    "beginnings",
    "sources",
    "gone_sources",
    "commits",
    "entries",
    "turns",
    "session",
)


def current(db: sqlite3.Connection, lane: str) -> SessionRecord | None:
    row = db.execute(SQL["session_of_lane"], {"lane": lane}).fetchone()
    return rows.session_record(row) if row is not None else None


def transcript(db: sqlite3.Connection, session: str, *, whole: bool) -> list[Entry]:
    query = SQL["entries_all" if whole else "entries"]
    return [rows.entry(row) for row in db.execute(query, {"session": session})]


def recall(
    db: sqlite3.Connection,
    session: str,
    *,
    revision: int,
    since: int,
    places: Sequence[str] = (),
) -> Recall:
    values = {"session": session, "since": since}
    versions = memory_places.versions(db, places)
    found = db.execute(SQL["session_recall"], values).fetchone()
    if found is None:
        return Recall(None, None, -1, (), whole=True, versions=versions)
    known = found["revision"] == revision
    read = db.execute(SQL["entries_since" if known else "entries"], values)
    entries = tuple(rows.entry(row) for row in read)
    return Recall(
        *(found["provider"], found["model"], found["revision"], entries),
        whole=not known,
        summary=found["summary"],
        versions=versions,
        outside=found["outside"],
    )


def listing(
    db: sqlite3.Connection, *, lane: str | None, limit: int, before: float | None
) -> list[SessionRecord]:
    query = SQL["sessions_by_time" if lane is None else "sessions_of_lane"]
    values = {"lane": lane, "limit": limit, "before": _FAR_FUTURE if before is None else before}
    return [rows.session_record(row) for row in db.execute(query, values)]


def under(
    db: sqlite3.Connection, lanes: str, *, limit: int, after: tuple[float, str] | None
) -> list[SessionRecord]:
    at, id = after or (_FAR_FUTURE, "")
    values = {"lanes": lanes, "beyond": f"{lanes}\U0010ffff", "limit": limit, "at": at, "id": id}
    return [rows.session_record(row) for row in db.execute(SQL["sessions_under"], values)]


def by_prefix(db: sqlite3.Connection, prefix: str, *, lane: str | None) -> list[SessionRecord]:
    values = {"prefix": prefix, "beyond": prefix + "\U0010ffff", "lane": lane}
    return [rows.session_record(row) for row in db.execute(SQL["sessions_by_prefix"], values)]


def delete(db: sqlite3.Connection, session: str, *, now: float, requests: bool = True) -> bool:
    """Remove what was said; the names of messages stay, so that none is ever taken twice."""
    values = {"session": session, "id": session}
    if db.execute(SQL["session_running"], values).fetchone() is not None:
        return False
    found = db.execute(SQL["session_get"], values).fetchone()
    if found is None:
        return False
    search.forget(db, session)
    forgetting.retire_session(db, session)
    for name in _FORGOTTEN:
        if "request" in name and not requests:
            continue
        db.execute(SQL[f"forget_{name}"], values)
    db.execute(SQL["search_retreat"])
    if found["current"]:
        lanes.begin_session(db, found["lane"], title=None, now=now)
    return True
