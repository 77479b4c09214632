"""Small things in SQL: what is kept with a session, and what a person has set."""

from __future__ import annotations

import sqlite3

from parley.storage.contract import StoreError
from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL

__all__ = ["note", "put_note", "put_setting", "setting"]


def note(db: sqlite3.Connection, session: str, name: str) -> str | None:
    return _value(db, "note_get", {"session": session, "name": name})


def put_note(db: sqlite3.Connection, session: str, name: str, value: str | None) -> None:
    place = {"session": session, "name": name}
    if value is None:
        db.execute(SQL["note_remove"], place)
    elif db.execute(SQL["note_put"], place | {"value": rows.storable(value)}).rowcount == 0:
        raise StoreError(f"There is no session `{session}` here to keep a note with.")


def setting(db: sqlite3.Connection, person: str, name: str) -> str | None:
    return _value(db, "person_setting_get", {"person": person, "name": name})


def put_setting(db: sqlite3.Connection, person: str, name: str, value: str | None) -> None:
    place = {"person": person, "name": name}
    if value is None:
        db.execute(SQL["person_setting_remove"], place)
    else:
        db.execute(SQL["person_setting_put"], place | {"value": rows.storable(value)})


def _value(db: sqlite3.Connection, query: str, place: dict[str, str]) -> str | None:
    row = db.execute(SQL[query], place).fetchone()
    return row["value"] if row is not None else None
