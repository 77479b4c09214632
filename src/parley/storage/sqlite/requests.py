"""What programs asked for, in SQL: requests that outlive their connection, and their logs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from parley.protocol import ChatMessage, Usage
from parley.storage.contract import (
    RequestEvent,
    RequestRecord,
    Said,
    TurnResult,
    Withdrawn,
)
from parley.storage.items import ResponseItems
from parley.storage.sqlite import lanes, rows
from parley.storage.sqlite.items import keep_items, remove_items
from parley.storage.sqlite.queries import SQL

__all__ = [
    "add_events",
    "drop_unwaited",
    "events",
    "finish",
    "get",
    "open_one",
    "prune",
    "remove",
    "turn_result",
    "under_way",
    "withdraw",
]

_PRUNED = 200
_PRUNED_EVENTS = 5000

Told = Sequence[tuple[str, Mapping[str, Any]]]


def open_one(
    db: sqlite3.Connection,
    record: RequestRecord,
    items: ResponseItems | None = None,
    *,
    now: float,
) -> tuple[RequestRecord, bool]:
    for row in db.execute(SQL["request_same"], {"key": record.key, "id": record.id}).fetchall():
        if not _is_past(row, now):
            return rows.request_record(row), False
        _remove(db, row["id"])
    db.execute(
        SQL["request_add"],
        {
            "id": record.id,
            "kind": record.kind,
            "owner": record.owner,
            "lane": record.lane,
            "dedupe": record.dedupe,
            "state": record.state,
            "body": rows.dump(record.body),
            "result": None if record.result is None else rows.dump(record.result),
            "key": record.key,
            "fingerprint": record.fingerprint,
            "expires_at": record.expires_at,
            "created_at": record.created_at,
            "ended_at": record.ended_at,
        },
    )
    if items is not None:
        keep_items(db, record.id, items)
    return record, True


def get(db: sqlite3.Connection, request: str, *, now: float) -> RequestRecord | None:
    row = db.execute(SQL["request_get"], {"id": request, "now": now}).fetchone()
    return rows.request_record(row) if row is not None else None


def under_way(db: sqlite3.Connection) -> list[RequestRecord]:
    return [rows.request_record(row) for row in db.execute(SQL["requests_open"])]


def finish(
    db: sqlite3.Connection,
    request: str,
    state: Literal["done", "failed", "stopped"],
    result: Mapping[str, Any] | None,
    told: Told,
    *,
    items: ResponseItems | None = None,
    now: float,
) -> list[RequestEvent] | None:
    kept = None if result is None else rows.dump(result)
    values = {"id": request, "state": state, "result": kept, "at": now}
    if db.execute(SQL["request_end"], values).rowcount == 0:
        return None
    if items is not None:
        keep_items(db, request, items)
    return _append(db, request, told, now=now)


def remove(db: sqlite3.Connection, request: str, *, now: float) -> bool:
    there = get(db, request, now=now) is not None
    _remove(db, request)
    return there


def prune(db: sqlite3.Connection, *, now: float) -> int:
    """One after another, until enough was done for one call."""
    pruned = events_gone = 0
    for row in db.execute(SQL["requests_expired"], {"now": now, "limit": _PRUNED}).fetchall():
        events_gone += _remove(db, row["id"])
        pruned += 1
        if events_gone >= _PRUNED_EVENTS:
            break
    return pruned


# ── the log ───────────────────────────────────────────────────────────────────────────────────


def add_events(
    db: sqlite3.Connection, request: str, told: Told, *, now: float
) -> list[RequestEvent]:
    if db.execute(SQL["request_is_open"], {"id": request}).fetchone() is None:
        return []
    return _append(db, request, told, now=now)


def events(
    db: sqlite3.Connection, request: str, *, after: int, limit: int, now: float
) -> list[RequestEvent]:
    if db.execute(SQL["request_get"], {"id": request, "now": now}).fetchone() is None:
        return []
    found = db.execute(SQL["request_events"], {"id": request, "after": after, "limit": limit})
    return [
        RequestEvent(row["number"], row["kind"], json.loads(row["data"]), row["at"])
        for row in found
    ]


def last_event(db: sqlite3.Connection, request: str) -> int:
    newest: int | None = db.execute(SQL["request_last_event"], {"id": request}).fetchone()[0]
    return newest or 0


def _append(db: sqlite3.Connection, request: str, told: Told, *, now: float) -> list[RequestEvent]:
    last = last_event(db, request)
    added = [
        RequestEvent(number, kind, data, now)
        for number, (kind, data) in enumerate(told, start=last + 1)
    ]
    for event in added:
        db.execute(
            SQL["request_add_event"],
            {
                "id": request,
                "number": event.number,
                "kind": event.kind,
                "data": rows.dump(event.data),
                "at": now,
            },
        )
    return added


# ── the turn of a request ─────────────────────────────────────────────────────────────────────


def turn_result(db: sqlite3.Connection, dedupe: str) -> TurnResult | None:
    message = db.execute(SQL["inbox_by_name"], {"dedupe": dedupe}).fetchone()
    if message is None:
        return None
    if message["turn"] is None:
        return TurnResult("queued" if message["state"] == "queued" else "dropped")
    turn = db.execute(SQL["turn_get"], {"turn": message["turn"]}).fetchone()
    if turn is None:
        return TurnResult("dropped")
    if turn["state"] == "undone":
        return TurnResult("stopped", turn["id"], turn["session"])
    return TurnResult(
        turn["state"], turn["id"], turn["session"], _said_in(db, turn), _cost_of(db, turn)
    )


def _said_in(db: sqlite3.Connection, turn: sqlite3.Row) -> tuple[ChatMessage, ...]:
    found = _of_turn(db, "entries_backwards", turn)
    return tuple(ChatMessage.from_dict(json.loads(row["body"])) for row in reversed(found))


def _cost_of(db: sqlite3.Connection, turn: sqlite3.Row) -> Usage | None:
    calls = _of_turn(db, "usage_backwards", turn)
    if not calls:
        return None
    return Usage(
        calls[0]["provider"],
        calls[0]["model"],
        input_tokens=sum(row["input_tokens"] for row in calls),
        output_tokens=sum(row["output_tokens"] for row in calls),
        cached_tokens=sum(row["cached_tokens"] for row in calls),
        micros=sum(row["micros"] for row in calls),
    )


def _of_turn(db: sqlite3.Connection, query: str, turn: sqlite3.Row) -> list[sqlite3.Row]:
    """Read no further back than the turn: a long session costs no more than a short one.

    The turns of a session follow each other, so what is older than the turn is of earlier ones.
    """
    found = []
    for row in db.execute(SQL[query], {"session": turn["session"]}):
        if row["turn"] < turn["id"]:
            break
        if row["turn"] == turn["id"]:
            found.append(row)
    return found


def withdraw(
    db: sqlite3.Connection, lane: str, dedupe: str, *, said: Said | None, now: float
) -> Withdrawn:
    message = db.execute(SQL["inbox_by_name"], {"dedupe": dedupe}).fetchone()
    if message is None or message["lane"] != lane:
        return Withdrawn()
    return _give_up(db, message, said=said, now=now)


def drop_unwaited(db: sqlite3.Connection, *, now: float) -> int:
    unwaited = db.execute(SQL["inbox_unwaited"]).fetchall()
    for message in unwaited:
        _give_up(db, message, said=None, now=now)
    return len(unwaited)


def _give_up(
    db: sqlite3.Connection, message: sqlite3.Row, *, said: Said | None, now: float
) -> Withdrawn:
    if message["state"] == "queued":
        db.execute(SQL["inbox_withdraw"], {"id": message["id"]})
        lanes.wake_unheld(db, message["lane"], now=now)
        return Withdrawn(dropped=True)
    if message["state"] == "taken":
        lanes.end_turn(db, message["lane"], message["turn"], said=said, now=now)
        return Withdrawn(turn=message["turn"])
    return Withdrawn()


def _is_past(row: sqlite3.Row, now: float) -> bool:
    expires: float | None = row["expires_at"]
    return row["ended_at"] is not None and expires is not None and expires <= now


def _remove(db: sqlite3.Connection, request: str) -> int:
    """The request and its log; how long that was."""
    gone = db.execute(SQL["request_remove_events"], {"id": request}).rowcount
    db.execute(SQL["request_remove"], {"id": request})
    remove_items(db, request)
    return gone
