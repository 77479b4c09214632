"""What slash commands change, in SQL: the effect, the reply and the end of the command in one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace

from parley.storage.contract import (
    Delivery,
    Draft,
    Effect,
    InboxMessage,
    NewSession,
    Nothing,
    Outcome,
    ResumeSession,
    RetryTurn,
    Said,
    SessionRecord,
    SetModel,
    SetTitle,
    Settle,
    StopTurn,
    UndoTurn,
)
from parley.storage.sqlite import lanes, outbox, questions, rows
from parley.storage.sqlite.queries import SQL
from parley.storage.sqlite.taking_back import take_back

__all__ = ["answer"]


def answer(
    db: sqlite3.Connection,
    lane: str,
    inbox_id: int,
    effect: Effect,
    reply: Callable[[Outcome], Draft],
    *,
    owner: str | None,
    now: float,
) -> list[Delivery] | None:
    if db.execute(SQL["inbox_finish_command"], {"id": inbox_id}).rowcount == 0:
        return None
    outcome = _apply(db, lane, inbox_id, effect, now=now)
    session = _current(db, lane).id
    db.execute(SQL["inbox_file"], {"id": inbox_id, "session": session})
    place = outbox.Place(lane, session)
    return outbox.add(db, [reply(outcome)], place, owner=owner, now=now)


def _apply(
    db: sqlite3.Connection, lane: str, inbox_id: int, effect: Effect, *, now: float
) -> Outcome:
    match effect:
        case Nothing():
            return Outcome(session=_current(db, lane))
        case StopTurn(drop_queued=drop_queued, said=said):
            stopped = lanes.stop(db, lane, drop_queued=drop_queued, said=said, turn=None, now=now)
            return Outcome(
                stopped=stopped.turn, dropped=stopped.dropped, session=_current(db, lane)
            )
        case NewSession(said=said, title=title):
            stopped_turn = lanes.end_running_turn(db, lane, said=said, now=now)
            lanes.begin_session(db, lane, title=rows.storable(title) if title else None, now=now)
            return Outcome(stopped=stopped_turn, session=_current(db, lane))
        case ResumeSession(session=session, said=said):
            found = db.execute(SQL["session_get"], {"id": session}).fetchone()
            if found is None or found["lane"] != lane:
                return Outcome(refused=True, session=_current(db, lane))
            stopped_turn = lanes.end_running_turn(db, lane, said=said, now=now)
            db.execute(SQL["lane_use_session"], {"lane": lane, "session": session})
            db.execute(SQL["session_touch"], {"session": session, "at": now})
            return Outcome(stopped=stopped_turn, session=_current(db, lane))
        case UndoTurn(said=said):
            return _undo(db, lane, said=said, now=now)[0]
        case RetryTurn(said=said):
            return _retry(db, lane, inbox_id, said=said, now=now)
        case SetTitle(title=title):
            db.execute(
                SQL["session_title"],
                {"session": _current(db, lane).id, "title": rows.storable(title), "at": now},
            )
            return Outcome(session=_current(db, lane))
        case SetModel(provider=provider, model=model):
            chosen = {"provider": provider, "model": model}
            db.execute(SQL["session_model"], chosen | {"session": _current(db, lane).id, "at": now})
            return Outcome(session=_current(db, lane))
        case Settle(question=id, state=state, by=by, scope=scope):
            settled = questions.settle(db, id, state, by=by, scope=scope, now=now)
            return Outcome(refused=not settled, session=_current(db, lane))


def _undo(
    db: sqlite3.Connection, lane: str, *, said: Said | None, now: float
) -> tuple[Outcome, list[InboxMessage]]:
    """Take back the newest turn, a running one first, and the messages it was to answer."""
    stopped = lanes.end_running_turn(db, lane, said=said, now=now)
    session = _current(db, lane)
    last = db.execute(SQL["turn_last"], {"session": session.id}).fetchone()
    if last is None:
        return Outcome(stopped=stopped, session=session), []
    db.execute(SQL["turn_undo"], {"turn": last["id"]})
    take_back(db, session.id, last["id"], now=now)
    db.execute(SQL["session_revise"], {"session": session.id, "at": now})
    found = db.execute(SQL["inbox_of_turn"], {"turn": last["id"]}).fetchall()
    messages = [rows.inbox_message(row) for row in found]
    words = tuple(taken.message.text for taken in messages)
    return Outcome(stopped=stopped, undone=words, session=_current(db, lane)), messages


def _retry(
    db: sqlite3.Connection, lane: str, inbox_id: int, *, said: Said | None, now: float
) -> Outcome:
    outcome, messages = _undo(db, lane, said=said, now=now)
    for taken in messages:
        dedupe = f"retry:{inbox_id}:{taken.id}"
        # What a person asks for again is of this session, whatever it was a report of.
        message = replace(taken.message, report=None)
        lanes.submit(db, lane, dedupe, message, kind="message", not_before=None, now=now)
    return outcome


def _current(db: sqlite3.Connection, lane: str) -> SessionRecord:
    return rows.session_record(db.execute(SQL["session_of_lane"], {"lane": lane}).fetchone())
