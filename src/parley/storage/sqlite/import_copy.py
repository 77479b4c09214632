"""Copy what was said and remembered out of a database from elsewhere into a fresh one.

The schema is our own: a trigger or view that somebody put into the file does nothing. Of
the rows only transcripts and facts are taken; what plans, allows, sends or says who a person is
stays behind.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final, TypedDict

from parley.protocol import ChatMessage
from parley.storage.contract import StoreError
from parley.storage.sqlite import rows
from parley.storage.sqlite.migrate import migrations, open_migrated, schema_version
from parley.storage.sqlite.quiet import quieten

__all__ = ["ForeignRows", "HeldJob", "copy_conversations"]

_KEPT: Final = (
    *("session", "turn", "entry", "lane", "fact", "fact_source", "fact_vector", "memory_commit"),
    *("memory_change", "memory_place", "gone", "gone_source", "gone_key"),
)
_KEPT_NAME: Final = re.compile(r"[0-9a-f]{64}")
_JOB: Final = ("id", "lane", "payload", "cron", "every", "timezone", "next_at")
_MOST_LISTED: Final = 1000
_GIVER: Final = "an imported profile"
_LARGEST_VALUE: Final = 64 * 1024**2


class HeldJob(TypedDict):
    """A planned job as its row has it."""

    id: str
    lane: str
    payload: str
    cron: str | None
    every: float | None
    timezone: str
    next_at: float


@dataclass(slots=True)
class ForeignRows:
    """What a database held that does not come along by itself."""

    jobs: list[HeldJob] = field(default_factory=list)
    grants: list[str] = field(default_factory=list)
    people: int = 0
    """Settings that people had."""


def copy_conversations(source: Path, target: Path, attachments: Path) -> ForeignRows:
    """Make `target` of the conversations and facts in `source`.

    Files that messages name are looked for in `attachments` and nowhere else. Raises
    `StoreError` when the source is damaged, of a later version, or no database of Parley's.
    """
    version = _version(source)
    if not 0 < version <= max(migrations()):
        raise StoreError("It is the database of another program, or of a newer Parley.")
    scripts = {number: text for number, text in migrations().items() if number <= version}
    with closing(open_migrated(target, scripts)) as db:
        db.execute("PRAGMA trusted_schema = OFF")
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
        db.create_function(
            "cleaned", 1, lambda body: _cleaned(body, attachments), deterministic=True
        )
        try:
            db.execute("ATTACH DATABASE ? AS old", (_read_only(source),))
            db.execute("BEGIN IMMEDIATE")
            for table in _KEPT:
                _copy(db, table)
            db.execute("UPDATE session SET provider = NULL, model = NULL")
            found = _left_behind(db)
            db.execute("COMMIT")
            db.execute("DETACH DATABASE old")
            quieten(db)
        except (sqlite3.Error, OverflowError) as error:
            raise StoreError(f"It cannot be read ({error}).") from error
    try:
        _mark_as_given(target)
    except sqlite3.Error as error:
        raise StoreError(f"It cannot be read ({error}).") from error
    return found


def _mark_as_given(target: Path) -> None:
    """Nothing is learned from it or summarized by itself: that would spend.

    None of it was said by the people who will talk here.
    """
    with closing(open_migrated(target)) as db:
        db.execute(
            "UPDATE session SET tend_at = NULL, folded = window_start, outside = ?, learned ="
            " coalesce((SELECT max(id) FROM entry WHERE entry.session = session.id), 0)",
            (_GIVER,),
        )
        db.execute("UPDATE fact SET outside = ? WHERE outside = ''", (_GIVER,))
        db.commit()
        # The file is moved without what SQLite keeps beside it.
        db.execute("PRAGMA journal_mode = DELETE")


def _read_only(source: Path) -> str:
    return f"{source.absolute().as_uri()}?mode=ro&immutable=1"


def _version(source: Path) -> int:
    try:
        with closing(sqlite3.connect(_read_only(source), uri=True)) as db:
            return schema_version(db)
    except sqlite3.Error as error:
        raise StoreError(f"It cannot be read ({error}).") from error


def _copy(db: sqlite3.Connection, table: str) -> None:
    wanted = _columns(db, "main", table)
    there = _columns(db, "old", table)
    names = [name for name in wanted if name in there]
    if not names:
        return
    values = ", ".join("cleaned(body)" if _is_body(table, name) else name for name in names)
    where = " WHERE cleaned(body) IS NOT NULL" if table == "entry" else ""
    db.execute(
        f"INSERT INTO main.{table} ({', '.join(names)}) SELECT {values} FROM old.{table}{where}"
    )


def _columns(db: sqlite3.Connection, schema: str, table: str) -> list[str]:
    """Of an ordinary table; a view or a virtual table of that name has none."""
    made = db.execute(
        f"SELECT sql FROM {schema}.sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    if made is None or str(made[0]).upper().lstrip().startswith("CREATE VIRTUAL"):
        return []
    return [row[1] for row in db.execute(f"PRAGMA {schema}.table_info({table})")]


def _is_body(table: str, column: str) -> bool:
    return (table, column) == ("entry", "body")


def _cleaned(body: object, attachments: Path) -> str | None:
    """A message whose files lie where this profile keeps them; None when it is none.

    A path from elsewhere would have any file of this machine read to the model.
    """
    try:
        message = ChatMessage.from_dict(json.loads(str(body)))
        files = tuple(
            replace(file, path=str(attachments / name))
            for file in message.attachments
            if _KEPT_NAME.fullmatch(name := PurePosixPath(file.path).name) and not file.is_remote
        )
        outside = message.outside or _GIVER
        return rows.dump(replace(message, attachments=files, outside=outside).to_dict())
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _left_behind(db: sqlite3.Connection) -> ForeignRows:
    found = ForeignRows()
    there = set(_columns(db, "old", "job"))
    if there:
        for row in _some(db, "job", *(n if n in there else f"NULL AS {n}" for n in _JOB)):
            if (job := _job(dict(row))) is not None:
                found.jobs.append(job)
    if {"person", "tool", "what"} <= set(_columns(db, "old", "permit")):
        found.grants = [" ".join(map(str, row)) for row in _some(db, "permit", "tool", "what")]
    if _columns(db, "old", "person_setting"):
        found.people = db.execute("SELECT count(*) FROM old.person_setting").fetchone()[0]
    return found


def _some(db: sqlite3.Connection, table: str, *columns: str) -> Iterator[sqlite3.Row]:
    yield from db.execute(f"SELECT {', '.join(columns)} FROM old.{table} LIMIT {_MOST_LISTED}")


def _job(row: dict[str, object]) -> HeldJob | None:
    cron, every = row["cron"], row["every"]
    if not isinstance(row["next_at"], int | float) or not isinstance(every, int | float | None):
        return None
    if not all(isinstance(row[name], str) for name in ("id", "lane", "payload", "timezone")):
        return None
    return HeldJob(
        id=str(row["id"]),
        lane=str(row["lane"]),
        payload=str(row["payload"]),
        cron=None if cron is None else str(cron),
        every=every,
        timezone=str(row["timezone"]),
        next_at=float(row["next_at"]),
    )
