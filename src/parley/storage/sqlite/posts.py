"""What is said outside of a lane's turns, in SQL: by a tool, or by work whose session is gone."""

from __future__ import annotations

import sqlite3

from parley.protocol import ChatMessage, InboundMessage, Report, person_of
from parley.storage.contract import Delivery, Draft, InboxMessage, StoreError
from parley.storage.sqlite import entries, outbox, rows
from parley.storage.sqlite.queries import SQL

__all__ = ["is_gone", "post", "tell"]


def post(
    db: sqlite3.Connection,
    lane: str,
    draft: Draft,
    *,
    said: ChatMessage | None,
    owner: str | None,
    now: float,
) -> list[Delivery]:
    found = db.execute(SQL["lane_get"], {"lane": lane}).fetchone()
    if found is None:
        raise StoreError(f"There is no conversation `{lane}` here to say something in.")
    if db.execute(SQL["outbox_id_of"], {"dedupe": draft.dedupe}).fetchone() is not None:
        return []
    session, turn = found["session"], None
    if said is not None:
        turn = _add_turn(db, found, draft, said, now=now)
        db.execute(SQL["session_touch"], {"session": session, "at": now})
    return outbox.add(db, [draft], outbox.Place(lane, session, turn), owner=owner, now=now)


def _add_turn(
    db: sqlite3.Connection, lane: sqlite3.Row, draft: Draft, said: ChatMessage, *, now: float
) -> int:
    """A turn that nobody ran and nobody counts: the one that runs there has its own entries."""
    values = {
        "lane": lane["key"],
        "session": lane["session"],
        "generation": lane["generation"],
        "source": rows.dump(draft.source.to_dict()),
        "person": person_of(draft.source),
        "at": now,
    }
    turn = db.execute(SQL["turn_add_posted"], values).lastrowid or 0
    entries.add(db, [said], session=lane["session"], turn=turn, now=now)
    return turn


def is_gone(report: Report, *, session: str, generation: int) -> bool:
    return report.session != session or report.generation != generation


def tell(
    db: sqlite3.Connection, lane: str, taken: InboxMessage, *, session: str, now: float
) -> None:
    """Show the notice of a report that came too late; nothing else of it is kept."""
    message: InboundMessage = taken.message
    report = message.report
    assert report is not None
    row = db.execute(SQL["inbox_tell"], {"id": taken.id}).fetchone()
    dedupe = f"report:{row['dedupe']}"
    draft = Draft(dedupe, message.source, report.notice, kind="notice")
    # With its own session, when that is deleted, the notice goes.
    own = db.execute(SQL["session_get"], {"id": report.session}).fetchone()
    place = outbox.Place(lane, session if own is None else report.session)
    outbox.add(db, [draft], place, owner=None, now=now)
