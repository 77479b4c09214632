"""The work of a statement does not grow with the age of the file: each finds its rows by index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from sqlite3 import Connection

import pytest

from parley.protocol import Usage
from parley.storage.contract import TurnEnd
from parley.storage.sqlite import SqliteStore
from parley.storage.sqlite.engine import connect
from parley.storage.sqlite.migrate import migrate
from parley.storage.sqlite.queries import SQL
from tests.builders import event_name, say
from tests.storage.conformance.base import claim_one, spoken

# Scans of an index that holds only what is under way, never what is done.
_BOUNDED_BY_WHAT_IS_UNDER_WAY = {
    "lanes_ready": "lane_ready",
    "lanes_recover": "lane_leased",
    "inbox_commands": "inbox_commands",
    "inbox_lanes_due": "inbox_planned",
    "counts": "inbox_queued|lane_leased|outbox_open|outbox_due|outbox_sending",
    "quiet_outbox": "outbox_open|outbox_due|outbox_sending",
    "quiet_turns": "turn_running",
    "quiet_requests": "request_open",
    "requests_open": "request_open",
    "requests_elsewhere": "request_open",
    "inbox_unwaited": "inbox_unwaited|request_open",
    "outbox_resume_repeatable": "outbox_sending",
    "outbox_resume_unsure": "outbox_sending",
    "works": "work_running",
    "chats_unplaced": "chat_unplaced",
    "quiet_chats": "chat_unplaced",
    "quiet_questions": "question_waiting|question_of_turn",
    "places_unwritten": "memory_unwritten",
    # All that is in it is asked for.
    "chats_archived": "chat_archived",
    # As far as it takes to find so many conversations.
    "conversations": "session_by_time",
    # All current facts, once, when the index of their words is made.
    "fact_words_fill": "fact_known",
}
# Tables that hold only what is under way.
_SMALL = {"reservations_held": "reservation", "reservations_of_others": "reservation"}
_SMALL |= {
    "quiet_reservations": "reservation",
    "works_ever": "w",
    "search_is_made": "sqlite_schema",
}
_SMALL |= dict.fromkeys(("search_last", "search_move", "search_retreat", "search_holds"), "indexed")
# As far as it takes to find so many, from the end.
_SMALL |= {"users": "user"}
# Lists of what an index found just before.
_SMALL |= {"search_reach": "(subquery-1)"}
_SMALL |= {"usage_of_session": "(subquery-2)"}
_SMALL |= {"facts_replaced_by": "c", "memory_changes_from": "f"}
# One row; all places; all facts, when vectors of them are made.
_SMALL |= {"gone_key_get": "gone_key", "places_all": "p"}
_SMALL |= {"fact_words_is_made": "sqlite_schema"}
_SMALL |= {"vectors_missing": "f"}
# What is found by words is found by their index; without one there is no other way.
_BY_WORDS = {"search_best", "search_excerpt", "search_forget", "entry_unindex"}
_BY_WORDS |= {"fact_words_find", "fact_words_drop"}
_BY_AN_INDEX_OF_WORDS = r"SCAN (said|w|fact_words) VIRTUAL TABLE INDEX 0:(M1|=|=M1)"
_SMALL |= {"search_plainly": "e"}
# What runs once, when the namespace of a profile changes, goes through everything.
_ONCE = {"adopt_turns": "turn", "adopt_inbox": "inbox", "adopt_outbox": "outbox"}
_ONCE |= {"adopt_requests": "request"}
_ONCE |= {"adopt_questions": "question", "adopt_speakers": "speaker"}
_ONCE |= {"adopt_chats": "chat"}
# What is done to a copy only.
_ONCE |= {"quiet_inbox": "inbox", "quiet_lanes": "lane", "quiet_given": "inbox"}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    file: Path = tmp_path_factory.mktemp("cost") / "parley.db"
    migrate(file)
    connection = connect(file)
    connection.execute(SQL["search_make"])
    connection.execute(SQL["fact_words_make"])
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
        if name in _BY_WORDS and re.fullmatch(_BY_AN_INDEX_OF_WORDS, line):
            continue
        assert re.search(rf"USING (COVERING )?INDEX ({allowed})$", line), line


async def test_the_result_of_a_turn_costs_no_more_in_a_long_session(tmp_path: Path) -> None:
    """Counted in steps of the database's own machine, not in time."""
    store = SqliteStore.open(tmp_path / "parley.db")

    async def steps(text: str) -> int:
        counted = 0

        def count() -> None:
            nonlocal counted
            counted += 1

        await say(store, text)
        end = TurnEnd("done", (spoken("reply"),), usage=Usage("p", "m", 1, 1))
        await store.commit(await claim_one(store), end)
        await store._engine.read(lambda db: db.set_progress_handler(count, 1))
        result = await store.turn_result(event_name(text))
        await store._engine.read(lambda db: db.set_progress_handler(None, 0))
        assert result is not None and len(result.messages) == 2
        return counted

    taken = [await steps(str(number)) for number in range(60)]
    assert max(taken[10:]) <= max(taken[:10])
    await store.close()


def test_a_scan_would_be_seen(db: Connection) -> None:
    assert _plan(db, "SELECT * FROM inbox WHERE payload = :x") == ["SCAN inbox"]
