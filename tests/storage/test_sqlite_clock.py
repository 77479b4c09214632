"""Cron lines over days, time zones and changes of the clock, with the time given."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from parley.storage.contract import Job, RateLimit
from parley.storage.sqlite import clock
from parley.storage.sqlite.engine import connect
from parley.storage.sqlite.migrate import migrate
from tests.builders import a_message

_BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    migrate(tmp_path / "parley.db")
    connection = connect(tmp_path / "parley.db")
    yield connection
    connection.close()


def _at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=_BERLIN).timestamp()


def _daily(cron: str) -> Job:
    return Job("daily", "c1", a_message("good morning"), cron=cron, timezone="Europe/Berlin")


def _queued(db: sqlite3.Connection) -> int:
    count: int = db.execute("SELECT count(*) FROM inbox").fetchone()[0]
    return count


def test_each_due_time_submits_once(db: sqlite3.Connection) -> None:
    clock.schedule(db, _daily("0 9 * * *"), now=_at("2026-05-01 08:00"))
    assert clock.tick(db, now=_at("2026-05-01 08:59")) == _at("2026-05-01 09:00")
    assert _queued(db) == 0
    for moment in ("09:00", "09:00", "09:01"):
        assert clock.tick(db, now=_at(f"2026-05-01 {moment}")) == _at("2026-05-02 09:00")
        assert _queued(db) == 1
    clock.tick(db, now=_at("2026-05-02 09:00"))
    assert _queued(db) == 2


def test_a_due_time_that_was_submitted_is_not_again_after_the_clock_went_back(
    db: sqlite3.Connection,
) -> None:
    clock.schedule(db, _daily("0 9 * * *"), now=_at("2026-05-01 08:00"))
    clock.tick(db, now=_at("2026-05-01 09:00"))
    clock.schedule(db, _daily("0 9 * * *"), now=_at("2026-05-01 08:30"))
    clock.tick(db, now=_at("2026-05-01 09:01"))
    assert _queued(db) == 1


def test_what_was_missed_while_nobody_ran_comes_once(db: sqlite3.Connection) -> None:
    clock.schedule(db, _daily("0 9 * * *"), now=_at("2026-05-01 08:00"))
    assert clock.tick(db, now=_at("2026-05-09 12:00")) == _at("2026-05-10 09:00")
    assert _queued(db) == 1


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_nine_in_the_morning_is_nine_when_the_clocks_change(day: str) -> None:
    due = clock.next_run("0 9 * * *", "Europe/Berlin", _at(f"{day} 00:30"))
    assert datetime.fromtimestamp(due, _BERLIN).strftime("%F %T") == f"{day} 09:00:00"


def test_a_time_the_clock_passes_twice_comes_once(db: sqlite3.Connection) -> None:
    clock.schedule(db, _daily("30 2 * * *"), now=_at("2026-10-25 00:00"))
    start = _at("2026-10-25 00:00")
    for minute in range(0, 8 * 60, 10):
        clock.tick(db, now=start + minute * 60)
    assert _queued(db) == 1


def test_a_time_the_clock_leaves_out_still_comes(db: sqlite3.Connection) -> None:
    clock.schedule(db, _daily("30 2 * * *"), now=_at("2026-03-29 00:00"))
    start = _at("2026-03-29 00:00")
    for minute in range(0, 8 * 60, 10):
        clock.tick(db, now=start + minute * 60)
    assert _queued(db) == 1


# ── every so many seconds ──


def _hourly(**changed: Any) -> Job:
    return Job("hourly", "c1", a_message("again"), every=3600.0, **changed)


def test_a_job_comes_every_so_often(db: sqlite3.Connection) -> None:
    clock.schedule(db, _hourly(), now=1000.0)
    assert clock.tick(db, now=4599.9) == 4600.0
    assert _queued(db) == 0
    for now in (4600.0, 4600.5, 4601.0):
        assert clock.tick(db, now=now) == 8200.0
        assert _queued(db) == 1


def test_the_times_of_a_job_do_not_drift(db: sqlite3.Connection) -> None:
    clock.schedule(db, _hourly(at=5000.0), now=1000.0)
    due: float | None = 5000.0
    for number in range(20):
        assert due == 5000.0 + 3600 * number
        due = clock.tick(db, now=due + 7.25)
    assert _queued(db) == 20


@pytest.mark.parametrize("late", [3600.0, 3600.5, 1e6])
def test_what_a_job_missed_while_nobody_ran_comes_once(db: sqlite3.Connection, late: float) -> None:
    clock.schedule(db, _hourly(), now=1000.0)
    following = clock.tick(db, now=4600.0 + late)
    assert _queued(db) == 1
    assert following is not None and 0 < following - (4600.0 + late) <= 3600
    assert (following - 4600.0) % 3600 == 0


# ── a row that cannot be read ──


@pytest.mark.parametrize(
    "damage",
    [
        "payload = '{'",
        "payload = '[]'",
        "payload = '{}'",
        "cron = 'whenever', every = NULL",
        "cron = '0 9 * * *', timezone = 'Nowhere/Land'",
        "every = 0.0",
    ],
)
def test_one_broken_job_stops_no_other(db: sqlite3.Connection, damage: str) -> None:
    clock.schedule(db, _hourly(), now=1000.0)
    clock.schedule(db, Job("once", "c2", a_message("hello"), at=4700.0), now=1000.0)
    db.execute(f"UPDATE job SET {damage} WHERE id = 'hourly'")
    later = clock.tick(db, now=5000.0)
    assert [row["lane"] for row in db.execute("SELECT lane FROM inbox")] == ["c2"]
    assert later is not None and later > 5000.0
    assert clock.unschedule(db, "hourly", lane="c1")
    assert clock.tick(db, now=5001.0) is None


def test_a_broken_job_is_left_out_of_the_list(db: sqlite3.Connection) -> None:
    clock.schedule(db, _hourly(), now=1000.0)
    clock.schedule(db, Job("once", "c1", a_message("hello"), at=4700.0), now=1000.0)
    db.execute("UPDATE job SET payload = '{' WHERE id = 'hourly'")
    assert [record.job.id for record in clock.planned(db, "c1")] == ["once"]


def test_a_bucket_fills_again_with_time(db: sqlite3.Connection) -> None:
    limit = RateLimit(capacity=2, per_second=0.5)
    waits = [clock.allow(db, "alice", 1, limit, now=100.0) for _ in range(3)]
    assert waits == [None, None, 2.0]
    assert clock.allow(db, "alice", 1, limit, now=101.0) == 1.0
    assert clock.allow(db, "alice", 1, limit, now=102.0) is None
    assert [clock.allow(db, "alice", 1, limit, now=9e9) for _ in range(3)] == [None, None, 2.0]
