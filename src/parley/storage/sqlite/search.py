"""Search in what was said, in SQL: an index of words that is filled when it is needed."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from parley.storage.hands import Conversation, FoundEntry
from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL

__all__ = [
    "PAGES",
    "conversation_at",
    "conversations",
    "find",
    "forget",
    "holds",
    "index",
    "is_made",
    "merge",
    "terms",
    "words_of",
]

_MOST_OF_A_TEXT = 20_000
_EXCERPT = 300
_MOST_WORDS = 32
_SHORTEST_BEGINNING = 3
PAGES = 200
"""As many are merged at a time."""


def index(db: sqlite3.Connection, limit: int) -> bool:
    """Take the next entries in; whether more are left. Without FTS5 there is nothing to do."""
    last: int = db.execute(SQL["search_last"]).fetchone()[0]
    reach = db.execute(SQL["search_reach"], {"last": last, "limit": limit}).fetchone()
    if not reach["entries"] or not (is_made(db) or _make(db)):
        return False
    values = {"last": last, "reach": reach["last"], "most": _MOST_OF_A_TEXT}
    db.execute(SQL["search_add"], values)
    db.execute(SQL["search_move"], values)
    return bool(reach["entries"] == limit)


def is_made(db: sqlite3.Connection) -> bool:
    return db.execute(SQL["search_is_made"]).fetchone() is not None


def _make(db: sqlite3.Connection) -> bool:
    """Make the index; False where this SQLite was built without it."""
    try:
        db.execute(SQL["search_make"])
    except sqlite3.OperationalError as error:
        if "no such module" in str(error):
            return False
        raise
    return True


def find(
    db: sqlite3.Connection, query: str, *, person: str | None, lane: str | None, limit: int
) -> list[FoundEntry]:
    words = words_of(query)
    if not words:
        return []
    values: dict[str, Any] = {"person": person, "lane": lane, "limit": limit}
    if not is_made(db):
        return _find_plainly(db, words, values)
    values["words"] = " ".join(terms(words))
    found = []
    # Excerpts are made of the best only: a common word is in every other line.
    for best in db.execute(SQL["search_best"], values).fetchall():
        row = db.execute(SQL["search_excerpt"], values | {"id": best["id"]}).fetchone()
        found.append(_found(row, row["excerpt"]))
    return found


def words_of(query: str) -> list[str]:
    """What of the query can be looked for: each piece with a letter or a digit in it."""
    pieces = rows.storable(query.replace("\0", " ")).split()
    found = dict.fromkeys(piece for piece in pieces if any(sign.isalnum() for sign in piece))
    return list(found)[:_MOST_WORDS]


def terms(words: list[str]) -> list[str]:
    """Quoted, a word is a word whatever is in it; with a star it may be the beginning of one."""
    return [
        '"' + word.replace('"', '""') + '"' + ("*" if len(word) >= _SHORTEST_BEGINNING else "")
        for word in words
    ]


def _find_plainly(
    db: sqlite3.Connection, words: list[str], values: dict[str, Any]
) -> list[FoundEntry]:
    longest = max(words, key=len)
    escaped = longest.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    found: list[FoundEntry] = []
    for row in db.execute(SQL["search_plainly"], values | {"like": f"%{escaped}%"}):
        text: str = json.loads(row["body"])["text"]
        if all(word.casefold() in text.casefold() for word in words):
            start = max(0, text.casefold().find(longest.casefold()) - _EXCERPT // 3)
            found.append(_found(row, text[start:]))
            if len(found) == values["limit"]:
                break
    return found


def _found(row: sqlite3.Row, excerpt: str) -> FoundEntry:
    return FoundEntry(
        id=row["id"],
        session=row["session"],
        title=row["title"],
        lane=row["lane"],
        role=json.loads(row["body"])["role"],
        at=row["at"],
        excerpt=" ".join(excerpt.split())[:_EXCERPT],
    )


def holds(db: sqlite3.Connection, session: str) -> bool:
    """Whether words of this session are in the index."""
    return db.execute(SQL["search_holds"], {"session": session}).fetchone() is not None


def forget(db: sqlite3.Connection, session: str) -> None:
    """Take a session's words out of the index, while its entries are still there."""
    if is_made(db):
        db.execute(SQL["search_forget"], {"session": session})


def merge(db: sqlite3.Connection, *, begin: bool) -> bool:
    """Let deleted words leave the file, a part at a time; whether more is to be done."""
    if not is_made(db):
        return False
    before = db.total_changes
    db.execute(SQL["search_merge"], {"pages": -PAGES if begin else PAGES})
    return db.total_changes - before >= 2


def conversations(db: sqlite3.Connection, person: str | None, *, limit: int) -> list[Conversation]:
    query = SQL["conversations" if person is None else "conversations_of_person"]
    return [_conversation(row) for row in db.execute(query, {"person": person, "limit": limit})]


def conversation_at(db: sqlite3.Connection, lane: str) -> Conversation | None:
    row = db.execute(SQL["conversation_at"], {"lane": lane}).fetchone()
    return None if row is None else _conversation(row)


def _conversation(row: sqlite3.Row) -> Conversation:
    return Conversation(
        lane=row["lane"],
        session=row["session"],
        title=row["title"],
        source=rows.source(row["source"]),
        at=row["at"],
    )
