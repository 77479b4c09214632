"""The outbox in SQL: replies wait here until their surface confirms them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from parley.storage.contract import Delivery, Draft
from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL

__all__ = ["Place", "add", "confirm", "doubtful", "lease", "resume"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reply belongs: its lane, its session, and the turn that said it, if one did."""

    lane: str
    session: str
    turn: int | None = None


def add(
    db: sqlite3.Connection,
    drafts: Sequence[Draft],
    place: Place,
    *,
    owner: str | None,
    now: float,
) -> list[Delivery]:
    """Store replies; those that may be handed over at once come back already leased."""
    handed = []
    for draft in drafts:
        account = rows.storable(draft.source.account or "")
        before = db.execute(SQL["outbox_open"], {"lane": place.lane, "account": account})
        behind = before.fetchone() is not None
        files = [file.to_dict() for file in draft.attachments]
        hand_over = draft.handover and owner is not None and not behind
        added = db.execute(
            SQL["outbox_add"],
            {
                "lane": place.lane,
                "platform": draft.source.platform,
                "account": account,
                "session": place.session,
                "turn": place.turn,
                "dedupe": draft.dedupe,
                "source": rows.dump(draft.source.to_dict()),
                "text": rows.storable(draft.text),
                "kind": draft.kind,
                "answers": rows.dump(draft.answers),
                "attachments": rows.dump(files) if files else None,
                "state": "sending" if hand_over else "waiting",
                "owner": owner if hand_over else None,
                "attempts": 1 if hand_over else 0,
                "at": now,
            },
        )
        if hand_over and added.rowcount:
            handed.append(
                Delivery(
                    id=added.lastrowid or 0,
                    lane=place.lane,
                    turn=place.turn,
                    dedupe=draft.dedupe,
                    source=draft.source,
                    text=draft.text,
                    kind=draft.kind,
                    answers=draft.answers,
                    state="sending",
                    attempts=1,
                    at=now,
                    session=place.session,
                    attachments=draft.attachments,
                )
            )
    return handed


def lease(
    db: sqlite3.Connection, platform: str, owner: str, limit: int, *, now: float
) -> list[Delivery]:
    due = db.execute(
        SQL["outbox_due"], {"platform": platform, "now": now, "limit": limit}
    ).fetchall()
    taken = (db.execute(SQL["outbox_lease"], {"id": row["id"], "owner": owner}) for row in due)
    return [rows.delivery(row) for found in taken for row in found.fetchall()]


def confirm(db: sqlite3.Connection, delivery: int, platform_id: str | None) -> bool:
    """The reply arrived; whether another of its lane is still on its way."""
    db.execute(SQL["outbox_sent"], {"id": delivery, "platform_id": platform_id})
    return db.execute(SQL["outbox_behind"], {"id": delivery}).fetchone() is not None


def resume(db: sqlite3.Connection, platform: str, owner: str, *, repeats: bool, now: float) -> None:
    query = SQL["outbox_resume_repeatable" if repeats else "outbox_resume_unsure"]
    db.execute(query, {"platform": platform, "owner": owner, "now": now})


def doubtful(db: sqlite3.Connection, state: str) -> tuple[Delivery, ...]:
    found = db.execute(SQL["outbox_doubtful"], {"state": state}).fetchall()
    return tuple(rows.delivery(row) for row in found)
