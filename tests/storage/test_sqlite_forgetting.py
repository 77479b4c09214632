"""A deleted session leaves no word of it in the file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from parley.storage.contract import NewSession, Said, SetTitle, StopTurn, TurnEnd, UndoTurn
from parley.storage.sqlite import SqliteStore
from tests.builders import an_end, say
from tests.storage.conformance.base import claim_one, command, converse, spoken, waiting_replies


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
