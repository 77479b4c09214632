"""Conversations that programs made, in SQL. Each function is one atomic operation."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from parley.protocol import ChatMessage, SessionSource, person_of
from parley.storage.contract import RequestRecord
from parley.storage.items import ConversationChange, ConversationRecord, ItemBody
from parley.storage.sqlite import entries, lanes, requests, rows, sessions
from parley.storage.sqlite.items import add_items
from parley.storage.sqlite.queries import SQL

__all__ = ["add_to", "create", "get", "instructions", "item", "note", "remove", "remove_item"]


def create(
    db: sqlite3.Connection,
    record: ConversationRecord,
    change: ConversationChange,
    *,
    now: float,
) -> RequestRecord | None:
    before = _again(db, change, now=now)
    if before is not None:
        return before
    values = {
        "id": record.id,
        "owner": record.owner,
        "lane": record.lane,
        "metadata": rows.dump(dict(record.metadata)),
        "at": record.created_at,
    }
    db.execute(SQL["conversation_add"], values)
    _add(db, record, change, now=now)
    return None


def add_to(
    db: sqlite3.Connection,
    record: ConversationRecord,
    change: ConversationChange,
    *,
    most: int,
    now: float,
) -> RequestRecord | bool:
    """What was done before under the same key; else whether there was room."""
    before = _again(db, change, now=now)
    if before is not None:
        return before
    if _count(db, record.id) + len(change.items) > most:
        return False
    _add(db, record, change, now=now)
    return True


def get(db: sqlite3.Connection, id: str) -> ConversationRecord | None:
    row = db.execute(SQL["conversation_get"], {"id": id}).fetchone()
    if row is None:
        return None
    metadata = json.loads(row["metadata"])
    return ConversationRecord(row["id"], row["owner"], row["lane"], metadata, row["created_at"])


def note(db: sqlite3.Connection, id: str, metadata: Mapping[str, str]) -> bool:
    values = {"id": id, "metadata": rows.dump(dict(metadata))}
    return db.execute(SQL["conversation_note"], values).rowcount > 0


def remove(db: sqlite3.Connection, record: ConversationRecord, *, now: float) -> bool:
    """The conversation with all that was said in it; False while a request is under way there."""
    if _is_busy(db, record.lane):
        return False
    values = {"id": record.id}
    for row in db.execute(SQL["conversation_sessions"], {"lane": record.lane}).fetchall():
        sessions.delete(db, row["id"], now=now)
    db.execute(SQL["conversation_remove_items"], values)
    db.execute(SQL["conversation_remove"], values)
    return True


def item(db: sqlite3.Connection, conversation: str, id: str) -> ItemBody | None:
    values = {"parent": conversation, "id": id}
    row = db.execute(SQL["item_of_conversation"], values).fetchone()
    found: ItemBody | None = None if row is None else json.loads(row["body"])
    return found


def instructions(db: sqlite3.Connection, conversation: str) -> list[ItemBody]:
    found = db.execute(SQL["items_instruct"], {"id": conversation})
    return [json.loads(row["body"]) for row in found]


def remove_item(
    db: sqlite3.Connection,
    record: ConversationRecord,
    id: str,
    left: ConversationChange,
    *,
    now: float,
) -> bool | None:
    """Take it out, and go on in a session with what is left.

    False while a request is under way there; None when the conversation is not as it was seen.
    """
    values = {"parent": record.id, "id": id}
    row = db.execute(SQL["item_of_conversation"], values).fetchone()
    ids = [each["id"] for each in db.execute(SQL["items_ids"], {"id": record.id})]
    if row is None or [each for each in ids if each != id] != [each["id"] for each in left.items]:
        return None
    if _is_busy(db, record.lane):
        return False
    number = {"number": row["number"]}
    if db.execute(SQL["item_leave"], number).rowcount == 0:
        db.execute(SQL["item_remove"], number)
    lanes.ensure_lane(db, record.lane, left.source.platform, now)
    lanes.begin_session(db, record.lane, title=None, now=now)
    _say(db, record.lane, left.messages, left.source, now=now)
    return True


def _again(
    db: sqlite3.Connection, change: ConversationChange, *, now: float
) -> RequestRecord | None:
    if change.done is None:
        return None
    kept, is_new = requests.open_one(db, change.done, now=now)
    return None if is_new else kept


def _add(
    db: sqlite3.Connection,
    record: ConversationRecord,
    change: ConversationChange,
    *,
    now: float,
) -> None:
    add_items(db, change.items, owner=record.owner, conversation=record.id)
    lanes.ensure_lane(db, record.lane, change.source.platform, now)
    _say(db, record.lane, change.messages, change.source, now=now)


def _say(
    db: sqlite3.Connection,
    lane: str,
    messages: Sequence[ChatMessage],
    source: SessionSource,
    *,
    now: float,
) -> None:
    """It is of a turn of its own, which nobody ran and nobody counts."""
    if not messages:
        return
    found = db.execute(SQL["lane_get"], {"lane": lane}).fetchone()
    posted = {
        "lane": lane,
        "session": found["session"],
        "generation": found["generation"],
        "source": rows.dump(source.to_dict()),
        "person": person_of(source),
        "at": now,
    }
    turn = db.execute(SQL["turn_add_posted"], posted).lastrowid or 0
    entries.add(db, messages, session=found["session"], turn=turn, now=now)


def _is_busy(db: sqlite3.Connection, lane: str) -> bool:
    """Whether a turn runs, or the answer of one is not stored item by item yet."""
    queries = ("turn_running", "request_open_in")
    return any(db.execute(SQL[name], {"lane": lane}).fetchone() is not None for name in queries)


def _count(db: sqlite3.Connection, conversation: str) -> int:
    return int(db.execute(SQL["items_count"], {"id": conversation}).fetchone()[0])
