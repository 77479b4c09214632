"""End all that is under way in a copy of a database: the original goes on with it."""

from __future__ import annotations

import sqlite3
import time

from parley.storage.sqlite.queries import SQL

__all__ = ["quieten"]

# A copy may be of an older version: each is done where the table that came with it is.
_STEPS = (
    ("outbox", "quiet_outbox"),
    ("inbox", "quiet_inbox"),
    ("turn", "quiet_turns"),
    ("lane", "quiet_lanes"),
    ("work", "quiet_works"),
    ("job", "quiet_jobs"),
    ("question", "quiet_questions"),
    ("reservation", "quiet_reservations"),
    ("request", "quiet_given"),
    ("request", "quiet_requests"),
    ("chat", "quiet_chats"),
    ("mark", "quiet_marks"),
)


def quieten(db: sqlite3.Connection) -> None:
    """Nothing waits, runs or is sent any more; what was said stays."""
    there = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table, statement in _STEPS:
        if table in there:
            db.execute(SQL[statement], {"at": time.time()})
    db.commit()
