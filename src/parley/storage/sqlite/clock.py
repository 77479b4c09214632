"""Jobs and rate limits in SQL: what happens by time."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from parley.protocol import InboundMessage
from parley.storage.contract import Job, RateLimit, StoreError
from parley.storage.sqlite import lanes, rows
from parley.storage.sqlite.queries import SQL

__all__ = ["allow", "next_run", "schedule", "tick"]


def next_run(cron: str, timezone: str, after: float) -> float:
    """The first time after `after` that the cron line names."""
    from cronsim import CronSim, CronSimError

    try:
        start = datetime.fromtimestamp(after, UTC).astimezone(ZoneInfo(timezone))
        return next(CronSim(cron, start)).timestamp()
    except (CronSimError, StopIteration) as error:
        raise StoreError(f"`{cron}` is not a schedule that ever comes due: {error}.") from error
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise StoreError(f"`{timezone}` is not a known time zone.") from error


def schedule(db: sqlite3.Connection, job: Job, *, now: float) -> None:
    if job.cron is None and job.at is None:
        raise StoreError("A job needs a time: `at` or `cron`.")
    first = next_run(job.cron, job.timezone, now) if job.cron is not None else job.at
    db.execute(
        SQL["job_put"],
        {
            "id": job.id,
            "lane": job.lane,
            "payload": rows.dump(job.message.to_dict()),
            "cron": job.cron,
            "timezone": job.timezone,
            "next_at": first,
        },
    )


def tick(db: sqlite3.Connection, *, now: float) -> float | None:
    """Submit due jobs, ready lanes whose planned message is due; when to look again."""
    for row in db.execute(SQL["jobs_due"], {"now": now}).fetchall():
        message = InboundMessage.from_dict(json.loads(row["payload"]))
        dedupe = f"job:{row['id']}:{row['next_at']:.3f}"
        lanes.submit(db, row["lane"], dedupe, message, kind="message", not_before=None, now=now)
        if row["cron"] is None:
            db.execute(SQL["job_delete"], {"id": row["id"]})
        else:
            following = next_run(row["cron"], row["timezone"], now)
            db.execute(SQL["job_move"], {"id": row["id"], "next_at": following})
    for row in db.execute(SQL["inbox_lanes_due"], {"now": now}).fetchall():
        db.execute(SQL["lane_ready"], {"lane": row["lane"]})
    times = (
        db.execute(SQL["job_next_at"]).fetchone()[0],
        db.execute(SQL["inbox_next_planned"], {"now": now}).fetchone()[0],
    )
    return min((at for at in times if at is not None), default=None)


def allow(
    db: sqlite3.Connection, user: str, cost: float, limit: RateLimit, *, now: float
) -> float | None:
    row = db.execute(SQL["bucket_get"], {"user": user}).fetchone()
    tokens = limit.capacity
    if row is not None:
        tokens = min(limit.capacity, row["tokens"] + (now - row["at"]) * limit.per_second)
    if tokens < cost:
        return (cost - tokens) / limit.per_second if limit.per_second > 0 else float("inf")
    db.execute(SQL["bucket_put"], {"user": user, "tokens": tokens - cost, "at": now})
    return None
