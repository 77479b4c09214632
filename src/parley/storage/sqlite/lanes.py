"""Lanes in SQL: accept, claim, step, commit, stop. Each function is one atomic operation."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from parley.protocol import ChatMessage, InboundMessage, Request, Usage, person_of
from parley.storage.contract import (
    Claim,
    Committed,
    Draft,
    InboxKind,
    InboxMessage,
    LeaseLost,
    Receipt,
    Said,
    SessionRecord,
    Stopped,
    TurnEnd,
)
from parley.storage.history_match import count_known
from parley.storage.sqlite import entries, outbox, posts, rows, spending
from parley.storage.sqlite.queries import SQL

__all__ = [
    "absorb",
    "begin_anew",
    "begin_session",
    "behind",
    "check",
    "claim",
    "commit",
    "end_running_turn",
    "end_turn",
    "ensure_lane",
    "is_new",
    "peek",
    "recover",
    "release",
    "step",
    "stop",
    "submit",
    "wake",
    "wake_unheld",
]


def submit(
    db: sqlite3.Connection,
    lane: str,
    dedupe: str,
    message: InboundMessage,
    *,
    kind: InboxKind,
    not_before: float | None,
    now: float,
    fresh: bool = False,
) -> Receipt:
    ensure_lane(db, lane, message.source.platform, now)
    record = message.to_dict()
    asked = record.pop("request", None)
    added = db.execute(
        SQL["inbox_add"],
        {
            "lane": lane,
            "dedupe": dedupe,
            "kind": kind,
            "payload": rows.dump(record),
            "request": None if asked is None else rows.dump(asked),
            "lasting": None if message.request is None else message.request.lasting,
            "not_before": not_before,
            "at": now,
        },
    )
    if added.rowcount == 0:
        found = db.execute(SQL["inbox_id_of"], {"dedupe": dedupe}).fetchone()
        return Receipt("duplicate", found["id"])
    if kind == "message" and (not_before is None or not_before <= now):
        db.execute(SQL["lane_ready"], {"lane": lane})
    return Receipt("queued", added.lastrowid or 0, fresh=fresh)


def begin_anew(
    db: sqlite3.Connection,
    lane: str,
    dedupe: str,
    fresh_before: float,
    notice: Callable[[SessionRecord], Draft] | None,
    *,
    now: float,
) -> bool:
    """Begin a new session when the last one is over and nothing is under way in the lane."""
    values = {"lane": lane, "dedupe": dedupe, "before": fresh_before}
    if db.execute(SQL["lane_is_over"], values).fetchone() is None:
        return False
    session = begin_session(db, lane, title=None, now=now)
    if notice is not None:
        row = db.execute(SQL["session_of_lane"], {"lane": lane}).fetchone()
        draft = replace(notice(rows.session_record(row)), dedupe=f"reset:{session}")
        outbox.add(db, [draft], outbox.Place(lane, session), owner=None, now=now)
    return True


def begin_session(db: sqlite3.Connection, lane: str, *, title: str | None, now: float) -> str:
    """The lane goes on with a session of its own."""
    session = rows.new_session_id()
    db.execute(SQL["session_add"], {"id": session, "lane": lane, "title": title, "at": now})
    db.execute(SQL["lane_use_session"], {"lane": lane, "session": session})
    return session


def is_new(db: sqlite3.Connection, dedupe: str) -> bool:
    return db.execute(SQL["inbox_id_of"], {"dedupe": dedupe}).fetchone() is None


def ensure_lane(db: sqlite3.Connection, lane: str, platform: str, now: float) -> None:
    if db.execute(SQL["lane_get"], {"lane": lane}).fetchone() is None:
        session = rows.new_session_id()
        db.execute(SQL["session_add"], {"id": session, "lane": lane, "title": None, "at": now})
        db.execute(SQL["lane_add"], {"lane": lane, "platform": platform, "session": session})


def claim(
    db: sqlite3.Connection,
    owner: str,
    limit: int,
    platforms: Sequence[str],
    *,
    told: set[str],
    now: float,
) -> list[Claim]:
    """`told` is given the platforms that a notice was left for."""
    ready = db.execute(
        SQL["lanes_ready"], {"platforms": json.dumps(list(platforms)), "limit": limit}
    ).fetchall()
    claims = []
    for row in ready:
        taken = _take(db, row, owner, told=told, now=now)
        if taken is None:
            db.execute(SQL["lane_idle"], {"lane": row["key"]})
        else:
            claims.append(taken)
    return claims


def _take(
    db: sqlite3.Connection, row: sqlite3.Row, owner: str, *, told: set[str], now: float
) -> Claim | None:
    lane: str = row["key"]
    running = db.execute(SQL["turn_running"], {"lane": lane}).fetchone()
    if running is not None:
        turn, attempt, session = running["id"], running["attempt"] + 1, running["session"]
        source = rows.source(running["source"])
        db.execute(SQL["turn_resume"], {"turn": turn})
        taken = db.execute(SQL["inbox_of_turn"], {"turn": turn}).fetchall()
        messages = tuple(rows.inbox_message(found) for found in taken)
    else:
        message = _next_message(db, row, told=told, now=now)
        if message is None:
            return None
        source, attempt = message.message.source, 1
        begin = {
            "lane": lane,
            "session": row["session"],
            "generation": row["generation"],
            "source": rows.dump(source.to_dict()),
            "person": _person(message.message),
            "at": now,
        }
        _take_earlier(db, message, begin)
        session = begin["session"]
        turn = db.execute(SQL["turn_add"], begin).lastrowid or 0
        db.execute(SQL["speaker_add"], begin)
        tend_at = None if source.platform == "task" else now
        db.execute(SQL["session_begin"], {"session": session, "at": now, "tend_at": tend_at})
        _take_message(db, message, session=session, turn=turn, now=now)
        messages = (message,)
    db.execute(SQL["lane_lease"], {"lane": lane, "owner": owner})
    return Claim(
        lane=lane,
        owner=owner,
        epoch=row["epoch"] + 1,
        generation=row["generation"],
        turn=turn,
        attempt=attempt,
        session=session,
        source=source,
        messages=messages,
        more=db.execute(SQL["inbox_next"], {"lane": lane, "now": now}).fetchone() is not None,
        told=_count_told(db, messages, session=session, turn=turn),
    )


def _next_message(
    db: sqlite3.Connection, row: sqlite3.Row, *, told: set[str], now: float
) -> InboxMessage | None:
    """The oldest message a turn may begin with; reports that came too late are only told."""
    lane, session, generation = row["key"], row["session"], row["generation"]
    while True:
        found = db.execute(SQL["inbox_next"], {"lane": lane, "now": now}).fetchone()
        if found is None:
            return None
        message = rows.inbox_message(found)
        report = message.message.report
        if report is None or not posts.is_gone(report, session=session, generation=generation):
            return message
        posts.tell(db, lane, message, session=session, now=now)
        told.add(message.message.source.platform)


def _person(message: InboundMessage) -> str:
    """Who is heard: for a delegated task, whoever delegated it."""
    request = message.request
    if request is not None and request.behalf is not None:
        return request.behalf.user
    return person_of(message.source)


def _take_message(
    db: sqlite3.Connection, taken: InboxMessage, *, session: str, turn: int, now: float
) -> None:
    db.execute(SQL["inbox_take"], {"id": taken.id, "turn": turn})
    message = taken.message
    said: Sequence[ChatMessage] = (
        (message.as_said(),) if message.request is None else message.request.asked
    )
    entries.add(db, said, session=session, turn=turn, now=now)


def _take_earlier(db: sqlite3.Connection, taken: InboxMessage, begin: dict[str, Any]) -> None:
    """Store what a program tells of the conversation and is not stored yet.

    It is of a turn of its own, which nobody ran and nobody counts. A program that tells what is
    stored differently goes on in a new session, so that later turns remember what it told.
    """
    request, now = taken.message.request, begin["at"]
    if request is None or not (request.earlier or request.whole):
        return
    new = request.earlier
    if not request.appended and not _is_empty(db, begin["session"]):
        known = _known(db, request, begin["session"])
        if known is None:
            begin["session"] = begin_session(db, begin["lane"], title=None, now=now)
        new = new[known:]
    if new:
        turn = db.execute(SQL["turn_add"], begin).lastrowid or 0
        entries.add(db, new, session=begin["session"], turn=turn, now=now)
        db.execute(SQL["turn_end"], {"turn": turn, "state": "done", "at": now})


def _is_empty(db: sqlite3.Connection, session: str) -> bool:
    return bool(db.execute(SQL["session_is_empty"], {"session": session}).fetchone()[0])


def _known(db: sqlite3.Connection, request: Request, session: str) -> int | None:
    """How much of what it tells is stored; read from the end, no further than it is told."""
    values = {"session": session}
    stored = db.execute(SQL["entries_newest_first"], values)
    return count_known(
        request.earlier,
        (ChatMessage.from_dict(json.loads(row["body"])) for row in stored),
        asked=request.asked,
        whole=request.whole,
        cut=db.execute(SQL["session_is_cut"], values).fetchone() is not None,
    )


def _count_told(
    db: sqlite3.Connection, messages: Sequence[InboxMessage], *, session: str, turn: int
) -> int:
    request = messages[0].message.request if messages else None
    if request is None or not request.earlier:
        return 0
    values = {"session": session, "turn": turn}
    return int(db.execute(SQL["told_before_turn"], values).fetchone()[0])


def recover(db: sqlite3.Connection, owner: str, *, now: float) -> int:
    spending.take_back(db, owner, now=now)
    return db.execute(SQL["lanes_recover"], {"owner": owner}).rowcount


def check(db: sqlite3.Connection, held: Claim) -> None:
    still = db.execute(
        SQL["lane_held"],
        {
            "lane": held.lane,
            "owner": held.owner,
            "epoch": held.epoch,
            "generation": held.generation,
        },
    ).fetchone()
    if still is None:
        raise LeaseLost("This turn was stopped or taken over.")


def peek(db: sqlite3.Connection, held: Claim, *, now: float) -> int:
    return len(db.execute(SQL["inbox_waiting"], {"lane": held.lane, "now": now}).fetchall())


def behind(db: sqlite3.Connection, held: Claim, *, now: float) -> tuple[InboxMessage, ...]:
    return tuple(taken for taken in _behind(db, held, now=now) if not _is_late(taken, held))


def absorb(
    db: sqlite3.Connection, held: Claim, *, told: set[str], now: float
) -> tuple[InboxMessage, ...]:
    check(db, held)
    absorbed = []
    for taken in _behind(db, held, now=now):
        if _is_late(taken, held):
            posts.tell(db, held.lane, taken, session=held.session, now=now)
            told.add(taken.message.source.platform)
            continue
        _take_message(db, taken, session=held.session, turn=held.turn, now=now)
        absorbed.append(taken)
    return tuple(absorbed)


def _behind(db: sqlite3.Connection, held: Claim, *, now: float) -> list[InboxMessage]:
    """Up to what waits for a turn of its own: the request of a program, and what came in by
    another account, since the turn's reply goes to one.

    What others say in a conversation that they share waits too: the turn has the skills of one
    person, and is paid from their plan.
    """
    if any(taken.message.request is not None for taken in held.messages):
        return []
    found = db.execute(SQL["inbox_waiting"], {"lane": held.lane, "now": now}).fetchall()
    joined = takewhile(partial(_joins, held), map(rows.inbox_message, found))
    return [taken for taken in joined if _is_late(taken, held) or _is_theirs(taken, held)]


def _joins(held: Claim, taken: InboxMessage) -> bool:
    message = taken.message
    if _is_late(taken, held):
        return True
    return message.request is None and message.source.account == held.source.account


def _is_theirs(taken: InboxMessage, held: Claim) -> bool:
    return person_of(taken.message.source) == person_of(held.source)


def _is_late(taken: InboxMessage, held: Claim) -> bool:
    report = taken.message.report
    return report is not None and posts.is_gone(
        report, session=held.session, generation=held.generation
    )


def step(
    db: sqlite3.Connection,
    held: Claim,
    messages: Sequence[ChatMessage],
    usage: Usage | None,
    *,
    now: float,
) -> None:
    check(db, held)
    entries.add(db, messages, session=held.session, turn=held.turn, now=now)
    if usage is not None:
        spending.count(db, held, usage, now=now)


def commit(db: sqlite3.Connection, held: Claim, end: TurnEnd, *, now: float) -> Committed:
    step(db, held, end.messages, end.usage, now=now)
    if end.usage is None:
        spending.let_go(db, held.turn)
    place = outbox.Place(held.lane, held.session, held.turn)
    handed = outbox.add(db, end.outbox, place, owner=held.owner, now=now)
    db.execute(SQL["questions_gone"], {"turn": held.turn})
    db.execute(SQL["inbox_finish_turn"], {"turn": held.turn})
    db.execute(SQL["turn_end"], {"turn": held.turn, "state": end.state, "at": now})
    db.execute(SQL["session_touch"], {"session": held.session, "at": now})
    return Committed(tuple(handed), more=wake(db, held.lane, now=now))


def release(db: sqlite3.Connection, held: Claim, *, now: float) -> None:
    check(db, held)
    spending.write_off(db, held.turn, now=now)
    db.execute(SQL["lane_idle"], {"lane": held.lane})
    db.execute(SQL["lane_ready"], {"lane": held.lane})


def wake(db: sqlite3.Connection, lane: str, *, now: float) -> bool:
    """A lane that nobody holds is idle, or ready when a turn or a message waits in it.

    One in line keeps its place. A turn waits behind another only where two lanes became one.
    """
    waits = (
        db.execute(SQL["turn_running"], {"lane": lane}).fetchone()
        or db.execute(SQL["inbox_next"], {"lane": lane, "now": now}).fetchone()
    )
    if waits is None:
        db.execute(SQL["lane_idle"], {"lane": lane})
        return False
    db.execute(SQL["lane_let_go"], {"lane": lane})
    db.execute(SQL["lane_ready"], {"lane": lane})
    return True


def wake_unheld(db: sqlite3.Connection, lane: str, *, now: float) -> None:
    """What waited in a lane changed; whoever runs a turn there goes on with it."""
    found = db.execute(SQL["lane_get"], {"lane": lane}).fetchone()
    if found is not None and found["state"] != "leased":
        wake(db, lane, now=now)


def stop(
    db: sqlite3.Connection,
    lane: str,
    *,
    drop_queued: bool,
    said: Said | None,
    turn: int | None = None,
    now: float,
) -> Stopped:
    found = db.execute(SQL["lane_get"], {"lane": lane}).fetchone()
    if found is None:
        return Stopped(turn=None, dropped=0, generation=0)
    running = db.execute(SQL["turn_running"], {"lane": lane}).fetchone()
    if turn is not None and (running is None or running["id"] != turn):
        return Stopped(turn=None, dropped=0, generation=found["generation"])
    dropped = db.execute(SQL["inbox_drop"], {"lane": lane}).rowcount if drop_queued else 0
    if dropped:
        db.execute(SQL["session_touch"], {"session": found["session"], "at": now})
    ended = end_running_turn(db, lane, said=said, now=now)
    return Stopped(turn=ended, dropped=dropped, generation=found["generation"] + 1)


def end_running_turn(
    db: sqlite3.Connection, lane: str, *, said: Said | None, now: float
) -> int | None:
    """Raise the generation; what the turn had said so far stays in the transcript."""
    db.execute(SQL["lane_raise_generation"], {"lane": lane})
    running = db.execute(SQL["turn_running"], {"lane": lane}).fetchone()
    if running is not None:
        _cut(db, running, said=said, now=now)
    wake(db, lane, now=now)
    return running["id"] if running is not None else None


def end_turn(
    db: sqlite3.Connection, lane: str, turn: int, *, said: Said | None, now: float
) -> None:
    """End this turn: the running one, or where two lanes became one, the one behind it."""
    running = db.execute(SQL["turn_running"], {"lane": lane}).fetchone()
    if running is not None and running["id"] == turn:
        end_running_turn(db, lane, said=said, now=now)
    elif (behind := db.execute(SQL["turn_get"], {"turn": turn}).fetchone()) is not None:
        _cut(db, behind, said=said, now=now)


def _cut(db: sqlite3.Connection, turn: sqlite3.Row, *, said: Said | None, now: float) -> None:
    number, session = turn["id"], turn["session"]
    if said is not None and said.text and said.turn == number:
        cut = ChatMessage("assistant", said.text, note="interrupted", outside=said.outside)
        entries.add(db, [cut], session=session, turn=number, now=now)
    spending.write_off(db, number, now=now)
    db.execute(SQL["questions_gone"], {"turn": number})
    db.execute(SQL["inbox_finish_turn"], {"turn": number})
    db.execute(SQL["turn_end"], {"turn": number, "state": "stopped", "at": now})
    db.execute(SQL["session_touch"], {"session": session, "at": now})
