"""A deleted session leaves no word of it in the file."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from parley.protocol import Behalf, Report, Request, Usage
from parley.storage.contract import NewSession, Said, SetTitle, StopTurn, TurnEnd, UndoTurn
from parley.storage.hands import Limit, Question
from parley.storage.sqlite import SqliteStore
from tests.builders import PLATFORM, a_draft, a_message, an_end, event_name, say
from tests.storage.conformance.base import (
    a_record,
    a_work,
    ask,
    asked,
    claim_one,
    command,
    converse,
    current,
    spoken,
    waiting_replies,
)


async def test_no_word_of_a_deleted_session_stays_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "parley.db"
    store = SqliteStore.open(file)
    await converse(store, "one secret", "two secret")
    await command(store, UndoTurn(), text="/undo three secret")
    await command(store, SetTitle("four secret"), text="/title five secret")
    await say(store, "six secret")
    claim = await claim_one(store)
    await say(store, "seven secret")
    await store.absorb(claim)
    await store.step(claim, [spoken("eight secret")])
    await say(store, "nine secret")
    await command(
        store, StopTurn(drop_queued=True, said=Said(claim.turn, "ten secret")), text="/stop"
    )
    await command(store, NewSession(), text="/new")
    await converse(store, "this is kept", "and this")
    await waiting_replies(store)
    old = next(record for record in await store.sessions() if not record.current)
    assert await store.delete_session(old.id)
    assert (await say(store, "six secret")).state == "duplicate"
    await store.close()
    assert b"this is kept" in _vacuumed(file)
    assert b" secret" not in _vacuumed(file)
    assert old.id.encode() not in _vacuumed(file)


async def test_no_word_of_a_program_in_a_deleted_session_stays(tmp_path: Path) -> None:
    file = tmp_path / "parley.db"
    store = SqliteStore.open(file)
    for number, ending in enumerate(("done", "waiting")):
        text = f"{number} secret"
        await ask(store, asked("a secret"), spoken("b secret"), asked(text), lasting=True)
        record = a_record(f"{number}", dedupe=event_name(text), body={"input": text}, key=text)
        await store.open_request(record)
        await store.add_request_events(record.id, [("delta", {"text": "c secret"})])
        if ending == "done":
            claim = await claim_one(store)
            await store.commit(claim, TurnEnd("done", (spoken("d secret"),)))
            await store.finish_request(record.id, "done", {"text": "e secret"})
    await store.withdraw("c1", event_name("1 secret"))
    assert await store.delete_session(claim.session)
    await store.close()
    assert b" secret" not in _vacuumed(file)


async def test_no_word_of_what_tools_kept_for_a_deleted_session_stays(tmp_path: Path) -> None:
    file = tmp_path / "parley.db"
    store = SqliteStore.open(file)
    for chat in ("c1", "c2"):
        await converse(store, f"kept words of {chat}", "ok", chat=chat)
    await say(store, "a secretword")
    claim = await claim_one(store)
    limits = [Limit(whose, "day", 0.0, 9e9) for whose in ("profile", "user", "session")]
    await store.spent(claim.payer, limits)
    session = await current(store)
    await store.begin_work(a_work("w1", session, body={"command": "secretword"}))
    await store.put_question(
        Question(
            *("q1", "call", "c1", session.id, claim.turn, "test:alice", False, "terminal"),
            digest="d1",
            what="It runs secretword.",
            expires_at=9e9,
        )
    )
    await store.settle_question("q1", "allowed", scope="session")
    await store.post("c1", a_draft("posted secretword"), said=spoken("posted secretword"))
    await store.put_note(session.id, "todo", "secretword")
    within = await store.chat_of_session("test:alice", session.id)
    await store.name_chat("test:alice", within.number, "secretword")
    room = await store.open_chat("test:alice", key="room")
    await store.place_chat("test:alice", room.number, claim.source, "c1")
    behalf = Behalf(claim.payer.user, session.id, platform=PLATFORM)
    request = Request("r", (asked("do it"),), behalf=behalf)
    await store.submit("t1", "task", replace(a_message("do it", chat="t1"), request=request))
    usage = Usage("p", "m", 1, 1)
    await store.commit(await claim_one(store), TurnEnd("done", usage=usage))
    await store.commit(claim, TurnEnd("done", (spoken("said secretword"),), usage=usage))
    assert len(await store.search_entries("secretword")) == 3
    await converse(store, "more kept words", "ok", chat="c2")
    assert len(await store.search_entries("kept")) == 3
    message = replace(a_message("late"), report=Report(session.id, 9, "about secretword"))
    await store.submit("c1", "late", message)
    await store.claim("one", 9, [PLATFORM])
    await store.end_work("w1", "done", {"output": "secretword"})
    assert await store.delete_session(session.id)
    assert len(await store.search_entries("kept")) == 2
    await store.close()
    content = _vacuumed(file)
    assert b"kept" in content
    # The index writes what a word shares with the one before it only once.
    assert b"cretword" not in content
    assert session.id.encode() not in content


@pytest.mark.parametrize("ending", ["commit", "stop", "new", "drop", "withdraw", "start"])
async def test_a_given_history_goes_with_the_end_of_its_turn(tmp_path: Path, ending: str) -> None:
    """The program sends it again each time: kept, it would grow with the square of the talk."""
    file = tmp_path / "parley.db"
    store = SqliteStore.open(file)
    await converse(store, "hello", "hi")
    for number in range(2):
        await ask(store, asked("the history"), spoken("of it"), asked(f"message {number}"))
    claim = await claim_one(store)
    assert await _kept(store) == 2
    match ending:
        case "commit":
            await store.commit(claim, an_end("reply"))
        case "stop":
            await store.stop("c1")
        case "new":
            await command(store, NewSession(), text="/new")
        case "drop":
            await store.stop("c1", drop_queued=True)
        case "withdraw":
            for number in range(2):
                await store.withdraw("c1", event_name(f"message {number}"))
        case "start":
            await store.drop_unwaited()
    assert await _kept(store) == (1 if ending in {"commit", "stop", "new"} else 0)
    await store.close()


async def _kept(store: SqliteStore) -> int:
    """How many messages still hold the history they came with."""
    count = "SELECT count(*) FROM inbox WHERE payload || coalesce(request, '') LIKE '%history%'"
    kept: int = (await store._engine.read(lambda db: db.execute(count).fetchone()))[0]
    return kept


async def test_an_unsent_reply_of_a_deleted_session_does_not_go(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "parley.db")
    await say(store, "hello")
    claim = await claim_one(store)
    await store.commit(claim, an_end("a secret"))
    await say(store, "elsewhere", chat="c2")
    await store.commit(await claim_one(store), TurnEnd("done"))
    await store.delete_session(claim.session)
    assert await waiting_replies(store) == []
    await store.close()


def _vacuumed(file: Path) -> bytes:
    """The bytes of the file without the pages that wait to be used again."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return file.read_bytes()
