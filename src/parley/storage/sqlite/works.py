"""Background work in SQL: what keeps a session from being over, and what became of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from parley.storage.contract import StoreError
from parley.storage.hands import Work, WorkState
from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL

__all__ = ["begin", "end", "get", "is_running", "is_under_way", "listing", "owed", "prune"]


def begin(db: sqlite3.Connection, work: Work, *, now: float) -> bool:
    begun = db.execute(
        SQL["work_begin"],
        {
            "id": work.id,
            "kind": work.kind,
            "lane": work.lane,
            "session": work.session,
            "generation": work.generation,
            "source": rows.dump(work.source.to_dict()),
            "notify": work.notify,
            "body": rows.dump(work.body),
            "at": work.at or now,
        },
    )
    if begun.rowcount == 0 and get(db, work.id) is None:
        raise StoreError(f"There is no session `{work.session}` here to work for.")
    return begun.rowcount > 0


def end(
    db: sqlite3.Connection,
    work: str,
    state: WorkState,
    result: Mapping[str, Any] | None,
    *,
    now: float,
) -> bool:
    """Its end is the session's last use, so that what it found still belongs there."""
    kept = None if result is None else rows.dump(result)
    values = {"id": work, "state": state, "result": kept, "at": now}
    ended = db.execute(SQL["work_end"], values).fetchall()
    for row in ended:
        db.execute(SQL["session_touch"], {"session": row["session"], "at": now})
    return bool(ended)


def get(db: sqlite3.Connection, work: str) -> Work | None:
    row = db.execute(SQL["work_get"], {"id": work}).fetchone()
    return _work(row) if row is not None else None


def listing(
    db: sqlite3.Connection, *, session: str | None, lane: str | None, running: bool
) -> list[Work]:
    name = "works" if running else "works_ever"
    if session is not None:
        name += "_of_session"
    elif lane is not None:
        name += "_of_lane"
    found = (_work(row) for row in db.execute(SQL[name], {"session": session, "lane": lane}))
    return [work for work in found if lane is None or work.lane == lane]


def owed(db: sqlite3.Connection, lane: str) -> int:
    count: int = db.execute(SQL["lane_owes"], {"lane": lane}).fetchone()["owed"]
    return count


def is_running(db: sqlite3.Connection, turn: int) -> bool:
    found = db.execute(SQL["turn_get"], {"turn": turn}).fetchone()
    return found is not None and found["state"] == "running"


def is_under_way(db: sqlite3.Connection, lane: str) -> bool:
    return db.execute(SQL["turn_running"], {"lane": lane}).fetchone() is not None


def prune(db: sqlite3.Connection, before: float) -> int:
    db.execute(SQL["questions_prune"], {"before": before})
    return db.execute(SQL["works_prune"], {"before": before}).rowcount


def _work(row: sqlite3.Row) -> Work:
    return Work(
        id=row["id"],
        kind=row["kind"],
        lane=row["lane"],
        session=row["session"],
        generation=row["generation"],
        source=rows.source(row["source"]),
        notify=bool(row["notify"]),
        body=json.loads(row["body"]),
        state=row["state"],
        result=None if row["result"] is None else json.loads(row["result"]),
        at=row["at"],
        ended_at=row["ended_at"],
    )
