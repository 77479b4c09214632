"""Between rows and the values of the contract."""

from __future__ import annotations

import json
import secrets
import sqlite3
from typing import Any

from parley.protocol import Attachment, ChatMessage, InboundMessage, SessionSource
from parley.storage.contract import Delivery, Entry, InboxMessage, RequestRecord, SessionRecord
from parley.storage.people import Chat, User

__all__ = [
    "chat",
    "delivery",
    "dump",
    "entry",
    "inbox_message",
    "new_session_id",
    "request_record",
    "session_record",
    "source",
    "storable",
    "user",
]


def dump(record: Any) -> str:
    return storable(json.dumps(record, ensure_ascii=False, separators=(",", ":")))


def storable(text: str) -> str:
    """Half a surrogate pair has no UTF-8: halves that met are joined, the others replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def new_session_id() -> str:
    return secrets.token_hex(6)


def source(text: str) -> SessionSource:
    return SessionSource.from_dict(json.loads(text))


def inbox_message(row: sqlite3.Row) -> InboxMessage:
    record = json.loads(row["payload"])
    if row["request"] is not None:
        record["request"] = json.loads(row["request"])
    return InboxMessage(row["id"], InboundMessage.from_dict(record))


def entry(row: sqlite3.Row) -> Entry:
    message = ChatMessage.from_dict(json.loads(row["body"]))
    return Entry(row["id"], row["turn"], message, row["at"], row["person"])


def session_record(row: sqlite3.Row) -> SessionRecord:
    return SessionRecord(
        id=row["id"],
        lane=row["lane"],
        title=row["title"],
        provider=row["provider"],
        model=row["model"],
        turns=row["turns"],
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        cached_tokens=row["cached_tokens"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        current=bool(row["current"]),
    )


def delivery(row: sqlite3.Row) -> Delivery:
    return Delivery(
        id=row["id"],
        lane=row["lane"],
        turn=row["turn"],
        dedupe=row["dedupe"],
        source=source(row["source"]),
        text=row["text"],
        kind=row["kind"],
        answers=tuple(json.loads(row["answers"])),
        state=row["state"],
        attempts=row["attempts"],
        at=row["at"],
        session=row["session"],
        attachments=tuple(Attachment(**item) for item in json.loads(row["attachments"] or "[]")),
    )


def user(row: sqlite3.Row, *, is_new: bool = False) -> User:
    platform, external_id = row["platform"], row["external_id"]
    return User(
        person=f"{platform}:{external_id}",
        platform=platform,
        external_id=external_id,
        display_name=row["display_name"],
        created_at=row["created_at"],
        is_new=is_new,
    )


def chat(row: sqlite3.Row) -> Chat:
    return Chat(
        person=row["person"],
        number=row["number"],
        name=row["name"],
        lane=row["lane"],
        session=row["session"],
        source=None if row["source"] is None else source(row["source"]),
        archived=bool(row["archived"]),
        created_at=row["created_at"],
    )


def request_record(row: sqlite3.Row) -> RequestRecord:
    return RequestRecord(
        id=row["id"],
        kind=row["kind"],
        owner=row["owner"],
        lane=row["lane"],
        dedupe=row["dedupe"],
        state=row["state"],
        body=json.loads(row["body"]),
        result=None if row["result"] is None else json.loads(row["result"]),
        key=row["key"],
        fingerprint=row["fingerprint"],
        expires_at=row["expires_at"],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
    )
