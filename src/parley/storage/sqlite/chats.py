"""The chats that people opened, in SQL: rooms of their own, or sessions of a lane."""

from __future__ import annotations

import sqlite3

from parley.protocol import SessionSource
from parley.storage.contract import StoreError
from parley.storage.people import Chat
from parley.storage.sqlite import lanes, rows
from parley.storage.sqlite.queries import SQL

__all__ = ["archived_lanes", "at", "of_person", "of_session", "open_one", "place", "unplaced"]


def open_one(
    db: sqlite3.Connection,
    person: str,
    key: str,
    *,
    name: str | None = None,
    lane: str | None = None,
    session: str | None = None,
    now: float,
) -> Chat:
    """The chat of this key, which is made now if there is none."""
    values = {"person": person, "key": key}
    found = db.execute(SQL["chat_of_key"], values).fetchone()
    if found is None:
        number = db.execute(SQL["chat_next"], values).fetchone()["last"]
        made = {"number": number, "name": name, "lane": lane, "session": session, "at": now}
        db.execute(SQL["chat_add"], values | made)
        found = db.execute(SQL["chat_of_key"], values).fetchone()
    return rows.chat(found)


def of_session(db: sqlite3.Connection, person: str, session: str, *, now: float) -> Chat:
    found = db.execute(SQL["session_get"], {"id": session}).fetchone()
    if found is None:
        raise StoreError(f"There is no session `{session}` here.")
    key = f"session:{session}"
    return open_one(db, person, key, lane=found["lane"], session=session, now=now)


def place(
    db: sqlite3.Connection,
    person: str,
    number: int,
    source: SessionSource,
    lane: str,
    *,
    now: float,
) -> Chat:
    chat = {"person": person, "number": number}
    there = at(db, lane)
    if there is not None and (there.person, there.number) != (person, number):
        raise StoreError(f"`{lane}` is another chat already; C{number} needs a room of its own.")
    lanes.ensure_lane(db, lane, source.platform, now)
    session = db.execute(SQL["lane_get"], {"lane": lane}).fetchone()["session"]
    placed = {"lane": lane, "source": rows.dump(source.to_dict()), "session": session}
    if db.execute(SQL["chat_place"], chat | placed).rowcount == 0:
        raise StoreError(f"There is no chat C{number} here that could be given a room.")
    return rows.chat(db.execute(SQL["chat_get"], chat).fetchone())


def at(db: sqlite3.Connection, lane: str) -> Chat | None:
    row = db.execute(SQL["chat_at"], {"lane": lane}).fetchone()
    return rows.chat(row) if row is not None else None


def of_person(db: sqlite3.Connection, person: str) -> list[Chat]:
    return [rows.chat(row) for row in db.execute(SQL["chats_of_person"], {"person": person})]


def unplaced(db: sqlite3.Connection) -> list[Chat]:
    return [rows.chat(row) for row in db.execute(SQL["chats_unplaced"])]


def archived_lanes(db: sqlite3.Connection) -> list[str]:
    return [row["lane"] for row in db.execute(SQL["chats_archived"])]
