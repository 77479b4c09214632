"""Places in SQL: how often what is remembered there has changed, and the views of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from parley.storage.memory import PlaceRecord, View
from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL

__all__ = ["listing", "put_view", "versions", "view"]


def versions(db: sqlite3.Connection, places: Sequence[str]) -> tuple[int, ...]:
    if not places:
        return ()
    found = db.execute(SQL["place_versions"], {"places": json.dumps(list(places))})
    return tuple(row["version"] for row in found)


def listing(db: sqlite3.Connection, *, unwritten: bool) -> list[PlaceRecord]:
    found = db.execute(SQL["places_unwritten" if unwritten else "places_all"])
    return [
        PlaceRecord(row["place"], row["facts"], row["version"], row["view_version"])
        for row in found
    ]


def view(db: sqlite3.Connection, place: str) -> View | None:
    row = db.execute(SQL["place_view"], {"place": place}).fetchone()
    return None if row is None else View(row["view"], row["view_version"])


def put_view(db: sqlite3.Connection, place: str, view: View) -> None:
    values = {"place": place, "version": view.version, "text": rows.storable(view.text)}
    db.execute(SQL["place_put_view"], values)
