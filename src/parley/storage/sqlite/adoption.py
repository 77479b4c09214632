"""The namespace of a profile's lanes, in SQL: all rows of another one are taken over."""

from __future__ import annotations

import sqlite3

from parley.storage.contract import StoreError
from parley.storage.sqlite import lanes
from parley.storage.sqlite.names import renamed
from parley.storage.sqlite.queries import SQL

__all__ = ["adopt"]

_FOLLOWERS = (
    *("sessions", "turns", "inbox", "outbox", "jobs", "requests", "questions", "speakers"),
    *("chats", "conversations"),
)
# May be for lanes that nobody has spoken in yet.
_AHEAD = ("jobs_elsewhere", "requests_elsewhere")


def adopt(db: sqlite3.Connection, namespace: str, *, now: float) -> int:
    if not namespace or ":" in namespace:
        raise StoreError(f"`{namespace}` cannot be the namespace of session keys.")
    others = {"inside": f"agent:{namespace}:", "beyond": f"agent:{namespace};"}
    found = [
        row
        for row in db.execute(SQL["lanes_elsewhere"], others).fetchall()
        if row["key"] != renamed(row["key"], namespace)
    ]
    if not found and all(db.execute(SQL[name], others).fetchone() is None for name in _AHEAD):
        return 0
    merged = [_move(db, row, renamed(row["key"], namespace)) for row in found]
    for name in _FOLLOWERS:
        db.execute(SQL[f"adopt_{name}"], {"namespace": namespace})
    for lane in filter(None, merged):
        lanes.wake(db, lane, now=now)
    return len(found)


def _move(db: sqlite3.Connection, row: sqlite3.Row, new: str) -> str | None:
    """Give the lane its new name; when another has it already, they become one, which is told."""
    there = db.execute(SQL["lane_get"], {"lane": new}).fetchone()
    if there is None:
        db.execute(SQL["lane_rename"], {"lane": row["key"], "new": new})
        return None
    for lane in (there, row):
        generation = max(there["generation"], row["generation"])
        merged = {"lane": lane["key"], "before": lane["generation"], "generation": generation}
        db.execute(SQL["works_merge"], merged)
    sessions = (there["session"], row["session"])
    db.execute(
        SQL["lane_merge"],
        {
            "lane": new,
            "session": max(sessions, key=lambda session: _last_used(db, session)),
            "epoch": row["epoch"],
            "generation": row["generation"],
        },
    )
    db.execute(SQL["lane_remove"], {"lane": row["key"]})
    return new


def _last_used(db: sqlite3.Connection, session: str) -> float:
    used: float = db.execute(SQL["session_get"], {"id": session}).fetchone()["updated_at"]
    return used
