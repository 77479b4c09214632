"""Sessions that wait to be tended, in SQL: which they are, what was said, what was made of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from parley.protocol import Usage
from parley.storage.memory import Commit, Consolidation, Fold, Line, NewFact, Seen, Tended
from parley.storage.sqlite import (
    commits,
    forgetting,
    gone,
    memory_rows,
    notes,
    remembering,
    rows,
    spending,
)
from parley.storage.sqlite.commits import Writing
from parley.storage.sqlite.outdated import correct_summaries
from parley.storage.sqlite.queries import SQL
from parley.storage.wording import Telling, normal_form, without_lines

__all__ = ["consolidate", "count_calls", "get", "in_line", "lines", "put_off", "remember_at"]

_LONGEST_PAUSE: Final = 2 * 3600.0


def in_line(
    db: sqlite3.Connection,
    now: float,
    *,
    limit: int,
    without: Collection[str],
    behind: Tended | None,
) -> list[Tended]:
    values = {
        "now": now,
        "beyond": now + _LONGEST_PAUSE,
        "limit": limit,
        "without": json.dumps(list(without)),
        "at": -1.0,
        "id": "",
    }
    if behind is not None and behind.seen.tend_at is not None:
        values |= {"at": behind.seen.tend_at, "id": behind.id}
    return [memory_rows.tended(row) for row in db.execute(SQL["sessions_untended"], values)]


def get(db: sqlite3.Connection, session: str) -> Tended | None:
    row = db.execute(SQL["session_tended"], {"session": session}).fetchone()
    return None if row is None else memory_rows.tended(row)


def put_off(db: sqlite3.Connection, session: str, seen: Seen, until: float | None) -> bool:
    if until is None and seen.in_turn:
        return False  # what that turn said was not looked at, whether it has ended since or not
    values = {"session": session, "seen": seen.tend_at, "until": until}
    return db.execute(SQL["session_put_off"], values).rowcount > 0


def remember_at(db: sqlite3.Connection, session: str, turn: int, place: str) -> None:
    before = notes.note(db, session, "memory")
    if before == place:
        return
    notes.put_note(db, session, "memory", place)
    if place:
        values = {"session": session, "turn": turn, "noted": before is not None}
        db.execute(SQL["session_learn_from"], values)


def lines(
    db: sqlite3.Connection, session: str, *, after: int, upto: int | None, most_bytes: int
) -> list[Line]:
    values = {"session": session, "after": after, "upto": upto}
    found = db.execute(SQL["lines_lengths"], values).fetchall()
    reach = _reach(found, most_bytes)
    if reach is None:
        return []
    read = db.execute(SQL["lines"], values | {"upto": reach})
    return [_without_gone(memory_rows.line(row), is_gone=row["is_gone"]) for row in read]


def _without_gone(line: Line, *, is_gone: bool) -> Line:
    """No summary is made of what something forgotten came from."""
    if not is_gone:
        return line
    return replace(line, message=replace(line.message, text=forgetting.BLANK, attachments=()))


def _reach(found: list[sqlite3.Row], most: int) -> int | None:
    """The last entry of as many whole turns as fit.

    What was posted while a turn ran comes behind it, with a number before that of the turn's last
    entry: it is read with it, so that no entry up to the last one is left out.
    """
    reach, size = None, 0
    for _, turn in groupby(found, key=lambda row: int(row["turn"])):
        entries = list(turn)
        size += sum(row["length"] for row in entries)
        if reach is not None and size > most:
            break
        reach = max(reach or 0, entries[-1]["id"])
    return reach


def consolidate(db: sqlite3.Connection, made: Consolidation, *, now: float) -> Commit | None:
    seen = made.seen
    values = {
        "session": made.session,
        "revision": seen.revision,
        "learned": seen.learned,
        "folded": seen.folded,
    }
    session = db.execute(SQL["session_as_seen"], values).fetchone()
    if session is None:
        return None
    writing = Writing(
        *(made.kind, made.place, now, made.by, made.note, made.session, made.first, made.last)
    )
    if made.forgets:
        _forget(db, made, now=now)
    for new in made.facts if made.place else ():
        _learn(db, writing, made, new)
    if made.fold is not None:
        _fold(db, writing, session, _without_forgotten(db, made, made.fold), made.outside)
    if made.cut is not None:
        cut = {"keep_from": made.cut, "outside": rows.storable(made.outside)}
        db.execute(SQL["session_window"], {"session": made.session, **cut})
    correct_summaries(db, made.place, writing.changes)
    db.execute(SQL["session_learn"], {"session": made.session, "learned": made.learned})
    count_calls(db, made.session, made.usage, now=now)
    if made.kind == "learned" and made.fold is None and not writing.changes:
        return writing.as_commit()
    return commits.write(db, writing)


def _forget(db: sqlite3.Connection, made: Consolidation, *, now: float) -> None:
    forgetting.forget(
        *(db, made.forgets), by=made.by, words=False, dedupe=None, place=made.place, now=now
    )


def _learn(db: sqlite3.Connection, writing: Writing, made: Consolidation, new: NewFact) -> None:
    values = {
        "session": made.session,
        "after": made.seen.learned,
        "entries": json.dumps(list(new.sources)),
    }
    entries = db.execute(SQL["entries_behind"], values).fetchall()
    if not entries:
        return
    new = remembering.with_sources(new, entries)
    said_at = writing.at if new.said_at is None else new.said_at
    if gone.is_gone(db, made.place, new.text, said_at=said_at):
        return
    settled = {
        "place": made.place,
        "form": normal_form(rows.storable(new.text)),
        "said_at": said_at,
    }
    if db.execute(SQL["fact_settled"], settled).fetchone() is not None:
        return
    remembering.take_in(db, writing, replace(new, said_at=said_at), "learned")


def _fold(
    db: sqlite3.Connection, writing: Writing, session: sqlite3.Row, fold: Fold, outside: str
) -> None:
    keep_from = max(session["folded"], fold.keep_from)
    summary = rows.storable(fold.summary)
    writing.folded = (session["folded"], keep_from)
    writing.summary = (session["summary"], summary)
    writing.window_before = session["window_start"]
    values = {"session": session["id"], "keep_from": keep_from, "summary": summary}
    db.execute(SQL["session_fold"], {**values, "outside": rows.storable(outside)})


def _without_forgotten(db: sqlite3.Connection, made: Consolidation, fold: Fold) -> Fold:
    """An answer may still tell what somebody has forgotten, in the agent's own words."""
    part = {"session": made.session, "first": made.first, "last": made.last}
    said = [row["text"] for row in db.execute(SQL["entries_gone"], part)]
    return replace(fold, summary=without_lines(fold.summary, Telling(said))) if said else fold


def count_calls(
    db: sqlite3.Connection, session: str, calls: Sequence[Usage], *, now: float
) -> None:
    if calls:
        turn = db.execute(SQL["turn_newest"], {"session": session}).fetchone()["id"] or 0
        for usage in calls:
            spending.count_apart(db, session, turn, usage, now=now)
