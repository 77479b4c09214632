"""Messages on their way into the inbox, in SQL: held back, in a new session, or queued."""

from __future__ import annotations

import sqlite3

from parley.storage.contract import RateLimit, Receipt
from parley.storage.people import Arrival
from parley.storage.sqlite import clock, lanes

__all__ = ["accept"]


def accept(
    db: sqlite3.Connection,
    arrival: Arrival,
    limit: RateLimit | None,
    *,
    not_before: float | None = None,
    now: float,
) -> Receipt:
    lane, dedupe, kind = arrival.lane, arrival.dedupe, arrival.kind
    if limit is not None and arrival.user is not None and lanes.is_new(db, dedupe):
        wait = clock.allow(db, arrival.user, 1.0, limit, now=now)
        if wait is not None:
            return Receipt("rate_limited", retry_after=wait)
    fresh = False
    if arrival.fresh_before is not None and kind == "message":
        fresh = lanes.begin_anew(db, lane, dedupe, arrival.fresh_before, arrival.notice, now=now)
    return lanes.submit(
        db, lane, dedupe, arrival.message, kind=kind, not_before=not_before, now=now, fresh=fresh
    )
