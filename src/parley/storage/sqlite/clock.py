"""Jobs and rate limits in SQL: what happens by time."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from parley.protocol import InboundMessage
from parley.storage.contract import Job, RateLimit, StoreError
from parley.storage.hands import JobRecord
from parley.storage.sqlite import lanes, rows
from parley.storage.sqlite.queries import SQL

__all__ = ["allow", "next_run", "planned", "schedule", "tick", "unschedule"]

_log = logging.getLogger("parley.storage")

_SHORTEST = 1.0
_LONGEST = 10 * 366 * 86400.0
_TRIED_AGAIN = 86400.0
_BROKEN = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, StoreError)


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
    db.execute(
        SQL["job_put"],
        {
            "id": job.id,
            "lane": job.lane,
            "payload": rows.dump(job.message.to_dict()),
            "cron": job.cron,
            "every": job.every,
            "timezone": job.timezone,
            "next_at": _first(job, now),
        },
    )


def _first(job: Job, now: float) -> float:
    if job.cron is not None:
        return next_run(job.cron, job.timezone, now)
    if job.every is not None and not _SHORTEST <= job.every <= _LONGEST:
        raise StoreError("A job can come every second at the most often, and every ten years.")
    first = now + job.every if job.at is None and job.every is not None else job.at
    if first is None or not math.isfinite(first):
        raise StoreError("A job needs a time: `at`, `every` or `cron`.")
    return first


def unschedule(db: sqlite3.Connection, job: str, *, lane: str | None) -> bool:
    name = "job_delete" if lane is None else "job_delete_of_lane"
    return db.execute(SQL[name], {"id": job, "lane": lane}).rowcount > 0


def planned(db: sqlite3.Connection, lane: str) -> list[JobRecord]:
    """What is planned for a lane; a row that cannot be read is left out."""
    found = []
    for row in db.execute(SQL["jobs_of_lane"], {"lane": lane}):
        with suppress(*_BROKEN):
            found.append(JobRecord(_job(row), row["next_at"]))
    return found


def under(
    db: sqlite3.Connection, lanes: str, *, limit: int, after: tuple[float, str] | None
) -> list[JobRecord]:
    """What is planned for lanes that begin so; a row that cannot be read is left out."""
    at, id = after or (-1e18, "")
    values = {"lanes": lanes, "beyond": f"{lanes}\U0010ffff", "limit": limit, "at": at, "id": id}
    found = []
    for row in db.execute(SQL["jobs_under"], values):
        with suppress(*_BROKEN):
            found.append(JobRecord(_job(row), row["next_at"]))
    return found


def _job(row: sqlite3.Row) -> Job:
    once = row["cron"] is None and row["every"] is None
    return Job(
        id=row["id"],
        lane=row["lane"],
        message=InboundMessage.from_dict(json.loads(row["payload"])),
        at=row["next_at"] if once else None,
        cron=row["cron"],
        every=row["every"],
        timezone=row["timezone"],
    )


def tick(db: sqlite3.Connection, *, now: float) -> float | None:
    """Submit due jobs, ready lanes whose planned message is due; when to look again."""
    for row in db.execute(SQL["jobs_due"], {"now": now}).fetchall():
        try:
            job = _job(row)
            following = _following(job, row["next_at"], now)
        except _BROKEN as error:
            _log.warning("job_broken", extra={"job": row["id"], "cause": repr(error)})
            db.execute(SQL["job_move"], {"id": row["id"], "next_at": now + _TRIED_AGAIN})
            continue
        dedupe = f"job:{job.id}:{row['next_at']:.3f}"
        lanes.submit(db, job.lane, dedupe, job.message, kind="message", not_before=None, now=now)
        if following is None:
            db.execute(SQL["job_delete"], {"id": job.id})
        else:
            db.execute(SQL["job_move"], {"id": job.id, "next_at": following})
    for row in db.execute(SQL["inbox_lanes_due"], {"now": now}).fetchall():
        db.execute(SQL["lane_ready"], {"lane": row["lane"]})
    times = (
        db.execute(SQL["job_next_at"]).fetchone()[0],
        db.execute(SQL["inbox_next_planned"], {"now": now}).fetchone()[0],
    )
    return min((at for at in times if at is not None), default=None)


def _following(job: Job, due: float, now: float) -> float | None:
    """The next time after now: what was missed while nobody ran comes once."""
    if job.cron is not None:
        return next_run(job.cron, job.timezone, now)
    if job.every is None:
        return None
    return due + job.every * (math.floor((now - due) / job.every) + 1)


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
