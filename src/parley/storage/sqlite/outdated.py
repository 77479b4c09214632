"""What was corrected leaves the summaries of its place too, in SQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from parley.storage.memory import Change
from parley.storage.sqlite import facts
from parley.storage.sqlite.queries import SQL
from parley.storage.wording import is_outdated

__all__ = ["correct_summaries"]


def correct_summaries(db: sqlite3.Connection, place: str, changes: Sequence[Change]) -> None:
    """Lines that still tell what one of these changes corrected are taken out."""
    pairs = [pair for change in changes if (pair := _correction(db, change)) is not None]
    if not pairs:
        return
    found = db.execute(SQL["sessions_of_places"], {"places": json.dumps([place])}).fetchall()
    for session in sorted({row["session"] for row in found}):
        row = db.execute(SQL["session_summary"], {"session": session}).fetchone()
        if row is None or not row["summary"]:
            continue
        lines = row["summary"].splitlines(keepends=True)
        left = [line for line in lines if not any(is_outdated(line, *pair) for pair in pairs)]
        if len(left) < len(lines):
            values = {"session": session, "summary": "".join(left)}
            db.execute(SQL["session_sum_up"], values)


def _correction(db: sqlite3.Connection, change: Change) -> tuple[str, str] | None:
    """The words as they were, and those that stand in their place."""
    before, after = change.before, change.after
    if before is None or after is None:
        return None
    if change.action == "replaced" and after.replaced_by is not None:
        by = facts.get(db, after.replaced_by)
        return None if by is None else (before.text, by.text)
    return (before.text, after.text) if change.action == "changed" else None
