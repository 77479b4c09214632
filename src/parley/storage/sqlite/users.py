"""Who has spoken, in SQL."""

from __future__ import annotations

import sqlite3

from parley.storage.people import User
from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL

__all__ = ["get", "newest", "welcome"]


def get(
    db: sqlite3.Connection, external_id: str, platform: str, display_name: str | None
) -> User | None:
    """Someone who is known, and by this name, if one is given."""
    row = db.execute(SQL["user_get"], {"platform": platform, "external_id": external_id}).fetchone()
    if row is None or (display_name is not None and display_name != row["display_name"]):
        return None
    return rows.user(row)


def welcome(
    db: sqlite3.Connection,
    external_id: str,
    platform: str,
    display_name: str | None,
    *,
    now: float,
) -> User:
    values = {
        "platform": platform,
        "external_id": external_id,
        "display_name": display_name,
        "at": now,
    }
    is_new = db.execute(SQL["user_add"], values).rowcount > 0
    if display_name is not None:
        db.execute(SQL["user_rename"], values)
    return rows.user(db.execute(SQL["user_get"], values).fetchone(), is_new=is_new)


def newest(db: sqlite3.Connection, *, limit: int) -> list[User]:
    return [rows.user(row) for row in db.execute(SQL["users"], {"limit": limit})]
