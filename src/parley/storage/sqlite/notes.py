"""Small things in SQL: what is kept with a session, what a person has set, surfaces' marks."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from parley.storage.contract import StoreError
from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL

__all__ = ["mark", "marks", "note", "put_marks", "put_note", "put_setting", "setting", "settings"]


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


def settings(db: sqlite3.Connection, person: str) -> dict[str, str]:
    found = db.execute(SQL["person_settings"], {"person": person})
    return {row["name"]: row["value"] for row in found}


def put_setting(db: sqlite3.Connection, person: str, name: str, value: str | None) -> None:
    place = {"person": person, "name": name}
    if value is None:
        db.execute(SQL["person_setting_remove"], place)
    else:
        db.execute(SQL["person_setting_put"], place | {"value": rows.storable(value)})


def mark(db: sqlite3.Connection, name: str) -> str | None:
    return _value(db, "mark_get", {"name": rows.storable(name)})


def marks(db: sqlite3.Connection, prefix: str) -> dict[str, str]:
    prefix = rows.storable(prefix)
    found = db.execute(SQL["marks_by_prefix"], {"prefix": prefix, "beyond": prefix + "\U0010ffff"})
    return {row["name"]: row["value"] for row in found}


def put_marks(db: sqlite3.Connection, marks: Mapping[str, str | None]) -> None:
    for name, value in marks.items():
        place = {"name": rows.storable(name)}
        if value is None:
            db.execute(SQL["mark_remove"], place)
        else:
            db.execute(SQL["mark_put"], place | {"value": rows.storable(value)})


def _value(db: sqlite3.Connection, query: str, place: dict[str, str]) -> str | None:
    row = db.execute(SQL[query], place).fetchone()
    return row["value"] if row is not None else None
