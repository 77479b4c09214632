"""A database with many sessions in it, made quickly: as if each had been talked in once."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from parley.protocol import ChatMessage, InboundMessage, SessionSource, Usage
from parley.storage.contract import Draft, TurnEnd
from parley.storage.sqlite import SqliteStore
from parley.storage.sqlite.engine import connect

__all__ = ["PLATFORM", "fill", "greeting", "lane_of"]

PLATFORM = "terminal"

_TABLES = ("session", "lane", "turn", "entry", "usage", "inbox", "outbox")
_COPIED_AS = {
    "lane": f"'agent:main:{PLATFORM}:dm:stored-' || n",
    "session": "CASE WHEN session IS NOT NULL THEN printf('%012x', n) END",
    "turn": "CASE WHEN turn IS NOT NULL THEN n + 1 END",
    "dedupe": "dedupe || '-' || n",
}
_NAMED_AS = {
    "session": {"id": "printf('%012x', n)"},
    "lane": {"key": _COPIED_AS["lane"]},
    "turn": {"id": "n + 1"},
}


def lane_of(number: int) -> str:
    return f"agent:main:{PLATFORM}:dm:stored-{number}"


def greeting(turn: int, source: SessionSource) -> TurnEnd:
    """The end of a turn that says hello."""
    said = ChatMessage("assistant", "hello to you as well")
    draft = Draft(f"turn:{turn}", source, said.text, handover=True)
    usage = Usage("scripted", "scripted", input_tokens=9, output_tokens=5)
    return TurnEnd("done", (said,), (draft,), usage)


def fill(file: Path, sessions: int) -> None:
    """Talk once in one session, then copy all its rows into as many as are wanted."""
    asyncio.run(_talk_once(file))
    with closing(connect(file)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        db.execute("CREATE TEMP TABLE copy (n INTEGER PRIMARY KEY)")
        db.executemany("INSERT INTO copy VALUES (?)", ((n,) for n in range(1, sessions + 1)))
        for table in _TABLES:
            _copy(db, table)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def _talk_once(file: Path) -> None:
    store = SqliteStore.open(file)
    source = SessionSource(PLATFORM, chat_id="stored-0", user_id="owner")
    message = InboundMessage(source, "hello there", event_id="stored")
    await store.submit(lane_of(0), "stored", message, user="owner")
    (claim,) = await store.claim("benchmark", 1, (PLATFORM,))
    for delivery in (await store.commit(claim, greeting(claim.turn, source))).handed:
        await store.delivered(delivery.id)
    await store.close()


def _copy(db: sqlite3.Connection, table: str) -> None:
    """Once for every number; a row's own id, where nothing refers to it, is the database's."""
    names = [row["name"] for row in db.execute(f"PRAGMA table_info({table})")]
    own = _NAMED_AS.get(table, {})
    columns = {name: own.get(name) or _COPIED_AS.get(name, name) for name in names}
    if "id" not in own:
        columns.pop("id", None)
    db.execute(f"CREATE TEMP TABLE one AS SELECT * FROM {table}")
    db.execute(
        f"INSERT INTO {table} ({', '.join(columns)})"
        f" SELECT {', '.join(columns.values())} FROM copy, one ORDER BY n"
    )
    db.execute("DROP TABLE one")
