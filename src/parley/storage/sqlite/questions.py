"""Questions to people in SQL, and what they granted beyond the call they were asked about."""

from __future__ import annotations

import sqlite3

from parley.storage.hands import Grant, Question, QuestionState, Scope
from parley.storage.sqlite import rows
from parley.storage.sqlite.queries import SQL

__all__ = ["get", "grants", "is_granted", "of_call", "put", "revoke", "settle", "use", "waiting"]


def put(db: sqlite3.Connection, question: Question, *, now: float) -> Question:
    db.execute(
        SQL["question_add"],
        {
            "id": question.id,
            "call": question.call,
            "lane": question.lane,
            "session": question.session,
            "turn": question.turn,
            "person": rows.storable(question.person),
            "owner": question.owner,
            "tool": rows.storable(question.tool),
            "digest": question.digest,
            "what": rows.storable(question.what),
            "once": question.once,
            "expires_at": question.expires_at,
            "state": question.state,
            "by": question.by,
            "at": question.at or now,
        },
    )
    stored = of_call(db, question.call)
    return question if stored is None else stored


def get(db: sqlite3.Connection, question: str) -> Question | None:
    row = db.execute(SQL["question_get"], {"id": question}).fetchone()
    return _question(row) if row is not None else None


def of_call(db: sqlite3.Connection, call: str) -> Question | None:
    row = db.execute(SQL["question_of_call"], {"call": call}).fetchone()
    return _question(row) if row is not None else None


def waiting(db: sqlite3.Connection, lane: str, *, now: float) -> list[Question]:
    found = db.execute(SQL["questions_waiting"], {"lane": lane, "now": now})
    return [_question(row) for row in found]


def settle(
    db: sqlite3.Connection,
    question: str,
    state: QuestionState,
    *,
    by: str | None,
    scope: Scope,
    now: float,
) -> bool:
    """Decide it once; a word that comes too late decides nothing."""
    statement = SQL["question_answer" if state in ("allowed", "denied") else "question_close"]
    values = {"id": question, "state": state, "by": by, "now": now}
    settled = db.execute(statement, values).fetchall()
    for row in settled:
        if state == "allowed" and scope != "once" and not row["once"]:
            place = {"scope": scope, "session": row["session"] if scope == "session" else ""}
            call = {name: row[name] for name in ("person", "tool", "digest", "what")}
            db.execute(SQL["permit_add"], place | call | {"at": now})
    return bool(settled)


def use(db: sqlite3.Connection, question: str) -> bool:
    return db.execute(SQL["question_use"], {"id": question}).rowcount > 0


def is_granted(
    db: sqlite3.Connection, *, session: str, person: str, tool: str, digest: str
) -> bool:
    values = {"session": session, "person": person, "tool": tool, "digest": digest}
    return db.execute(SQL["permit_find"], values).fetchone() is not None


def grants(db: sqlite3.Connection, person: str) -> list[Grant]:
    return [
        Grant(
            id=row["id"],
            scope=row["scope"],
            session=row["session"] or None,
            person=row["person"],
            tool=row["tool"],
            what=row["what"],
            at=row["at"],
        )
        for row in db.execute(SQL["permits"], {"person": person})
    ]


def revoke(db: sqlite3.Connection, person: str, grant: int | None) -> int:
    return db.execute(SQL["permits_revoke"], {"person": person, "id": grant}).rowcount


def _question(row: sqlite3.Row) -> Question:
    return Question(
        id=row["id"],
        call=row["call"],
        lane=row["lane"],
        session=row["session"],
        turn=row["turn"],
        person=row["person"],
        owner=bool(row["owner"]),
        tool=row["tool"],
        digest=row["digest"],
        what=row["what"],
        once=row["once"],
        expires_at=row["expires_at"],
        state=row["state"],
        by=row["answerer"],
        at=row["at"],
    )
