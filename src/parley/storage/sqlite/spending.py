"""What model calls cost, in SQL: the ledger, what was spent of a limit, and what is held."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from parley.protocol import Usage
from parley.storage.contract import Claim, LeaseLost
from parley.storage.hands import Limit, Overrun, Payer, Reservation, Spent
from parley.storage.sqlite.queries import SQL

__all__ = ["count", "count_apart", "let_go", "reserve", "spent", "take_back", "write_off"]

_KEPT = 40 * 86400.0


def count(db: sqlite3.Connection, held: Claim, usage: Usage, *, now: float) -> None:
    """A call of this turn was made and told its cost."""
    payer = held.payer
    let_go(db, held.turn)
    _enter(
        db,
        {
            "session": held.session,
            "turn": held.turn,
            "provider": usage.provider,
            "model": usage.model,
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cached": usage.cached_tokens,
            "micros": usage.micros,
            "user": payer.user,
            "charged": None if payer.session == held.session else payer.session,
            "at": now,
        },
    )


def count_apart(
    db: sqlite3.Connection, session: str, turn: int, usage: Usage, *, now: float
) -> None:
    """A call that nobody asked for was made for a session: it is of no person's plan."""
    _enter(
        db,
        {
            "session": session,
            "turn": turn,
            "provider": usage.provider,
            "model": usage.model,
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cached": usage.cached_tokens,
            "micros": usage.micros,
            "user": None,
            "charged": None,
            "at": now,
        },
    )


def let_go(db: sqlite3.Connection, turn: int) -> None:
    db.execute(SQL["reservation_drop"], {"turn": turn})


def write_off(db: sqlite3.Connection, turn: int, *, now: float) -> None:
    """Nobody will hear what a call of this turn did cost: what was sent counts as spent."""
    for row in db.execute(SQL["reservation_take"], {"turn": turn}).fetchall():
        found = db.execute(SQL["turn_get"], {"turn": turn}).fetchone()
        session = row["session"] if found is None else found["session"]
        _enter(
            db,
            {
                "session": session,
                "turn": turn,
                "provider": row["provider"],
                "model": row["model"],
                "input": row["input_tokens"],
                "output": 0,
                "cached": 0,
                "micros": _share(row),
                "user": row["user"],
                "charged": None if row["session"] == session else row["session"],
                "at": now,
            },
        )


def _share(row: sqlite3.Row) -> int:
    tokens: int = max(row["tokens"], row["input_tokens"], 1)
    return -(-int(row["micros"]) * int(row["input_tokens"]) // tokens)


def take_back(db: sqlite3.Connection, owner: str, *, now: float) -> None:
    """What dead owners held is spent."""
    for row in db.execute(SQL["reservations_of_others"], {"owner": owner}).fetchall():
        write_off(db, row["turn"], now=now)


def _enter(db: sqlite3.Connection, counted: dict[str, Any]) -> None:
    db.execute(SQL["usage_add"], counted)
    db.execute(SQL["session_count"], counted)
    if db.execute(SQL["spend_is_counted"], counted).fetchone() is not None:
        db.execute(SQL["spend_count"], counted)


def reserve(
    db: sqlite3.Connection, wanted: Reservation, limits: Sequence[Limit], *, now: float
) -> Overrun | None:
    held = {"turn": wanted.turn, "owner": wanted.owner}
    if db.execute(SQL["turn_is_held"], held).fetchone() is None:
        raise LeaseLost("This turn was stopped or taken over.")
    for limit, so_far in zip(
        limits, spent(db, wanted.payer, limits, but=wanted.turn, now=now), strict=True
    ):
        if _overruns(limit, so_far, wanted):
            return Overrun(limit, so_far)
    db.execute(
        SQL["reservation_put"],
        {
            "turn": wanted.turn,
            "owner": wanted.owner,
            "user": wanted.payer.user,
            "session": wanted.payer.session,
            "provider": wanted.provider,
            "model": wanted.model,
            "input": wanted.input_tokens,
            "tokens": wanted.tokens,
            "micros": wanted.micros,
        },
    )
    return None


def _overruns(limit: Limit, so_far: Spent, wanted: Reservation) -> bool:
    """Whether the call breaks the limit; a plan is broken when not one token is left of it."""
    tokens, micros = so_far.tokens + wanted.tokens, so_far.micros + wanted.micros
    if limit.plan is not None:
        tokens, micros = so_far.tokens + 1, so_far.micros + 1
    return (limit.tokens is not None and tokens > limit.tokens) or (
        limit.micros is not None and micros > limit.micros
    )


def spent(
    db: sqlite3.Connection, payer: Payer, limits: Sequence[Limit], *, but: int = 0, now: float
) -> list[Spent]:
    """What is spent and held of each limit, without what the turn `but` holds."""
    who = {"profile": "", "user": payer.user, "session": payer.session}
    held = db.execute(SQL["reservations_held"], who | {"turn": but}).fetchone()
    found = []
    for limit in limits:
        row = _row(db, limit, who[limit.whose], now=now)
        tokens, micros = held[f"{limit.whose}_tokens"], held[f"{limit.whose}_micros"]
        found.append(Spent(row["tokens"] + tokens, row["micros"] + micros))
    return found


def _row(db: sqlite3.Connection, limit: Limit, who: str, *, now: float) -> sqlite3.Row:
    """The running sum; for a limit that was never asked for, it is made from the ledger."""
    place = {"whose": limit.whose, "who": who, "since": limit.since, "until": limit.until}
    row: sqlite3.Row | None = db.execute(SQL["spend_get"], place).fetchone()
    if row is None:
        row = db.execute(SQL[f"usage_of_{limit.whose}"], place).fetchone()
        assert row is not None
        db.execute(SQL["spend_prune"], {"before": now - _KEPT})
        db.execute(SQL["spend_put"], place | {"tokens": row["tokens"], "micros": row["micros"]})
    return row
