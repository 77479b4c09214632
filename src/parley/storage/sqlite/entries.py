"""The lines of a transcript, as they are added."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from parley.protocol import ChatMessage
from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL

__all__ = ["add"]


def add(
    db: sqlite3.Connection,
    messages: Sequence[ChatMessage],
    *,
    session: str,
    turn: int,
    now: float,
) -> None:
    for message in messages:
        body = rows.dump(message.to_dict())
        db.execute(SQL["entry_add"], {"session": session, "turn": turn, "body": body, "at": now})
