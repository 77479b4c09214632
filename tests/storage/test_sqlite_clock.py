"""Cron lines over days, time zones and changes of the clock, with the time given."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
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


def test_a_bucket_fills_again_with_time(db: sqlite3.Connection) -> None:
    limit = RateLimit(capacity=2, per_second=0.5)
    waits = [clock.allow(db, "alice", 1, limit, now=100.0) for _ in range(3)]
    assert waits == [None, None, 2.0]
    assert clock.allow(db, "alice", 1, limit, now=101.0) == 1.0
    assert clock.allow(db, "alice", 1, limit, now=102.0) is None
    assert [clock.allow(db, "alice", 1, limit, now=9e9) for _ in range(3)] == [None, None, 2.0]
