"""Background work in SQL: what keeps a session from being over."""

from __future__ import annotations

import sqlite3

from parley.storage.contract import StoreError, Work
from parley.storage.sqlite.queries import SQL

__all__ = ["begin", "end", "listing"]


def begin(
    db: sqlite3.Connection, work: str, *, lane: str, session: str, owner: str, now: float
) -> None:
    values = {"work": work, "lane": lane, "session": session, "owner": owner, "at": now}
    if db.execute(SQL["work_begin"], values).rowcount == 0:
        raise StoreError(f"There is no session `{session}` here to work for.")


def end(db: sqlite3.Connection, work: str, *, now: float) -> bool:
    """Its end is the session's last use, so that what it found still belongs there."""
    ended = db.execute(SQL["work_end"], {"work": work}).fetchall()
    for row in ended:
        db.execute(SQL["session_touch"], {"session": row["session"], "at": now})
    return bool(ended)


def listing(db: sqlite3.Connection, session: str) -> list[Work]:
    found = db.execute(SQL["works_of_session"], {"session": session}).fetchall()
    return [Work(row["id"], row["lane"], row["session"], row["owner"], row["at"]) for row in found]
