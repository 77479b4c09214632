"""What was forgotten, in SQL: known again by a keyed digest, and by nothing else."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3

from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL
from parley.storage.wording import normal_form

__all__ = ["is_gone", "let_go", "recall"]


def let_go(db: sqlite3.Connection, place: str, text: str, *, now: float) -> None:
    """What was said up to now is not learned again."""
    db.execute(SQL["gone_put"], {"place": place, "digest": _digest(db, text), "at": now})


def is_gone(db: sqlite3.Connection, place: str, text: str, *, said_at: float) -> bool:
    """Whether this was forgotten after it was said."""
    key = db.execute(SQL["gone_key_get"]).fetchone()
    if key is None:
        return False
    values = {"place": place, "digest": _digest(db, text), "said_at": said_at}
    return db.execute(SQL["gone_since"], values).fetchone() is not None


def recall(db: sqlite3.Connection, place: str, text: str) -> None:
    """A person wants it remembered after all."""
    if db.execute(SQL["gone_key_get"]).fetchone() is not None:
        db.execute(SQL["gone_drop"], {"place": place, "digest": _digest(db, text)})


def _digest(db: sqlite3.Connection, text: str) -> bytes:
    found = db.execute(SQL["gone_key_get"]).fetchone()
    if found is None:
        key = secrets.token_bytes(32)
        db.execute(SQL["gone_key_put"], {"key": key})
    else:
        key = found["key"]
    form = normal_form(rows.storable(text))
    return hmac.new(key, form.encode(), hashlib.sha256).digest()
