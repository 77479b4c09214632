"""The work of a statement does not grow with the age of the file: each finds its rows by index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from sqlite3 import Connection

import pytest

from parley.storage.sqlite.engine import connect
from parley.storage.sqlite.migrate import migrate
from parley.storage.sqlite.queries import SQL

# Scans of an index that holds only what is under way, never what is done.
_BOUNDED_BY_WHAT_IS_UNDER_WAY = {
    "lanes_ready": "lane_ready",
    "lanes_recover": "lane_leased",
    "inbox_commands": "inbox_commands",
    "inbox_lanes_due": "inbox_planned",
    "counts": "inbox_queued|lane_leased|outbox_open|outbox_due|outbox_sending",
    "quiet_outbox": "outbox_open|outbox_due|outbox_sending",
    "quiet_turns": "turn_running",
    "outbox_resume_repeatable": "outbox_sending",
    "outbox_resume_unsure": "outbox_sending",
}
# Tables that hold only what is under way.
_SMALL = {"works_recover": "work"}
# What runs once, when the namespace of a profile changes, goes through everything.
_ONCE = {"adopt_turns": "turn", "adopt_inbox": "inbox", "adopt_outbox": "outbox"}
# What is done to a copy only.
_ONCE |= {"quiet_inbox": "inbox", "quiet_lanes": "lane"}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    file: Path = tmp_path_factory.mktemp("cost") / "parley.db"
    migrate(file)
    connection = connect(file)
    yield connection
    connection.close()


def _plan(db: Connection, statement: str) -> list[str]:
    values = dict.fromkeys(re.findall(r":(\w+)", statement))
    return [row["detail"] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


@pytest.mark.parametrize("name", sorted(SQL))
def test_a_statement_scans_no_table(db: Connection, name: str) -> None:
    allowed = _BOUNDED_BY_WHAT_IS_UNDER_WAY.get(name, "nothing")
    for line in _plan(db, SQL[name]):
        if not line.startswith("SCAN") or line.startswith(("SCAN json_each", "SCAN CONSTANT")):
            continue
        if line == f"SCAN {(_SMALL | _ONCE).get(name)}":
            continue
        assert re.search(rf"USING (COVERING )?INDEX ({allowed})$", line), line


def test_a_scan_would_be_seen(db: Connection) -> None:
    assert _plan(db, "SELECT * FROM inbox WHERE payload = :x") == ["SCAN inbox"]
