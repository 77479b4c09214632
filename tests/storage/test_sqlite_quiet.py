"""A copy of a database goes on with nothing of what the original is doing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from parley.storage.contract import Job
from parley.storage.hands import Limit, Question, Reservation, Spent
from parley.storage.sqlite import SqliteStore
from parley.storage.sqlite.migrate import migrate, migrations
from parley.storage.sqlite.quiet import quieten
from tests.builders import PLATFORM, a_message, a_source, event_name, say
from tests.storage.conformance.base import (
    OWNER,
    a_record,
    a_work,
    ask,
    asked,
    claim_one,
    current,
    spoken,
    words,
)


def _quiet_copy(file: Path) -> Path:
    copy = file.with_name("copy.db")
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        quieten(target)
    return copy


async def test_requests_are_stopped_in_the_copy_and_go_on_in_the_original(tmp_path: Path) -> None:
    original = SqliteStore.open(tmp_path / "parley.db")
    for text in ("one", "two", "three"):
        await ask(original, asked("the history"), spoken("of it"), asked(text), lasting=True)
        await original.open_request(a_record(text, key=text))
    await claim_one(original)
    await original.mark_request("run_one", "running")
    await original.finish_request("run_three", "done", {"text": "hi"})
    copy = SqliteStore.open(_quiet_copy(tmp_path / "parley.db"))
    assert await copy.open_requests() == []
    for name, state in (("one", "stopped"), ("two", "stopped"), ("three", "done")):
        found = await copy.request(f"run_{name}")
        assert found is not None and found.ended_at is not None
        assert (found.state, found.key) == (state, name)
    assert await copy.claim("other", 9, [PLATFORM]) == []
    result = await copy.turn_result(event_name("one"))
    assert result is not None and result.state == "stopped"
    result = await copy.turn_result(event_name("two"))
    assert result is not None and result.state == "dropped"
    assert await words(copy) == ["the history", "of it", "one"]
    given = "SELECT count(*) FROM inbox WHERE request IS NOT NULL"
    assert (await copy._engine.read(lambda db: db.execute(given).fetchone()))[0] == 0
    assert {record.id for record in await original.open_requests()} == {"run_one", "run_two"}
    assert await original.recover(OWNER) == 0
    await copy.close()
    await original.close()


async def test_nothing_of_what_tools_began_goes_on_in_the_copy(tmp_path: Path) -> None:
    original = SqliteStore.open(tmp_path / "parley.db")
    await say(original, "hello")
    claim = await claim_one(original)
    session = await current(original)
    await original.begin_work(a_work("w1", session))
    await original.schedule(Job("j1", "c1", a_message("wake up"), at=1.0))
    question = Question("q1", "call", "c1", session.id, 1, "p", False, "t", "d", "what", 9e9)
    await original.put_question(question)
    limit = Limit("profile", "day", 0.0, 9e9)
    wanted = Reservation(claim.turn, claim.payer, OWNER, "p", "m", 1, 2, 3)
    assert await original.reserve(wanted, [limit]) is None
    await original.put_note(session.id, "todo", "milk")
    copy = SqliteStore.open(_quiet_copy(tmp_path / "parley.db"))
    assert await copy.works(running=False) == []
    assert await copy.questions("c1") == []
    assert await copy.jobs("c1") == []
    assert await copy.tick() is None
    await copy.recover("other")
    assert await copy.spent(claim.payer, [limit]) == [Spent()]
    assert await copy.note(session.id, "todo") == "milk"
    assert await original.questions("c1") != []
    assert [job.job.id for job in await original.jobs("c1")] == ["j1"]
    await copy.close()
    await original.close()


async def test_the_copy_makes_no_room_and_reads_no_stream_of_the_original(
    tmp_path: Path,
) -> None:
    """It keeps who people are and where their chats are."""
    original = SqliteStore.open(tmp_path / "parley.db")
    alice = await original.get_or_create_user("alice", PLATFORM, "Alice")
    for key in ("placed", "waiting"):
        await original.open_chat(alice.person, key=key)
    placed = await original.place_chat(alice.person, 1, a_source("room"), "room")
    await original.put_marks({"since": "s1"})
    copy = SqliteStore.open(_quiet_copy(tmp_path / "parley.db"))
    assert await copy.chats(alice.person) == [placed]
    assert await copy.unplaced_chats() == []
    assert await copy.marks("") == {}
    assert not (await copy.get_or_create_user("alice", PLATFORM)).is_new
    assert (await copy.open_chat(alice.person, key="next")).number == 3
    assert len(await original.unplaced_chats()) == 1
    assert await original.mark("since") == "s1"
    await copy.close()
    await original.close()


async def test_a_copy_of_any_version_is_made_quiet(tmp_path: Path) -> None:
    """It is copied as it stands: who brings it back upgrades it."""
    for version in migrations():
        file = tmp_path / str(version) / "parley.db"
        file.parent.mkdir()
        migrate(file, {number: text for number, text in migrations().items() if number <= version})
        with closing(sqlite3.connect(file)) as db:
            db.execute(
                "INSERT INTO inbox (lane, dedupe, kind, payload, state, at)"
                " VALUES ('c1', 'one', 'message', '{}', 'queued', 1)"
            )
            db.commit()
        store = SqliteStore.open(_quiet_copy(file))
        assert (await store.health()).queued == 0
        await store.close()
