"""The database file itself: made, migrated with a copy beside it, or refused untouched."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from parley.protocol import SessionSource, person_of
from parley.storage.contract import StoreError, TurnEnd
from parley.storage.hands import Limit, Payer, Spent
from parley.storage.sqlite import SqliteStore
from parley.storage.sqlite.migrate import migrate, migrations, schema_version
from tests.builders import PLATFORM, say
from tests.storage.conformance.base import (
    a_record,
    ask,
    asked,
    claim_one,
    current,
    words,
)

_NEXT = max(migrations()) + 1
_ADDS_A_COLUMN = {_NEXT: "ALTER TABLE session ADD COLUMN mood TEXT;"}
_BREAKS_OFF = {_NEXT: "ALTER TABLE session ADD COLUMN mood TEXT; INSERT INTO nowhere VALUES (1);"}


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A database in which something was said."""
    file = tmp_path / "home" / "parley.db"
    store = SqliteStore.open(file)
    await say(store, "hello")
    await store.close()
    return file


def _version(file: Path) -> int:
    with sqlite3.connect(file) as connection:
        version = schema_version(connection)
    connection.close()
    return version


def _set_version(file: Path, version: int) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


async def test_a_new_database_is_private_to_its_owner(file: Path) -> None:
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    store = SqliteStore.open(file)
    await say(store, "more")
    assert {p.name for p in file.parent.iterdir()} > {file.name}
    assert all(path.stat().st_mode & 0o077 == 0 for path in file.parent.iterdir())
    await store.close()


async def test_a_database_is_private_from_its_first_moment(tmp_path: Path) -> None:
    """The log beside it holds every word before the file does."""
    before = os.umask(0o022)
    try:
        store = SqliteStore.open(tmp_path / "parley.db")
        await say(store, "hello")
    finally:
        os.umask(before)
    assert {path.suffix for path in tmp_path.iterdir()} == {".db", ".db-wal", ".db-shm"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    await store.close()


async def test_a_database_of_this_version_is_left_as_it_is(file: Path) -> None:
    before = file.read_bytes()
    migrate(file)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir() if "backup" in path.name] == []


async def test_an_older_database_is_upgraded_with_a_copy_beside_it(file: Path) -> None:
    old = _version(file)
    migrate(file, {**migrations()} | _ADDS_A_COLUMN)
    assert _version(file) == _NEXT
    copy = file.with_name(f"{file.name}.schema-{old}.backup")
    assert copy.stat().st_mode & 0o077 == 0
    shutil.copy(copy, file)
    store = SqliteStore.open(file)
    assert (await say(store, "hello")).state == "duplicate"
    assert (await current(store)).turns == 0
    await store.close()


async def test_a_database_from_before_there_were_requests_goes_on(tmp_path: Path) -> None:
    """A turn that was under way and a message that waited are answered after the upgrade."""
    file = tmp_path / "parley.db"
    migrate(file, {number: script for number, script in migrations().items() if number <= 2})
    source = f'{{"platform":"{PLATFORM}","chat_id":"c1","chat_type":"dm"}}'
    with sqlite3.connect(file) as db:
        db.execute("INSERT INTO session (id, lane, created_at, updated_at) VALUES ('s','c1',1,1)")
        db.execute(
            "INSERT INTO lane (key, platform, session, state, owner) VALUES (?,?,?,?,?)",
            ("c1", PLATFORM, "s", "leased", "dead"),
        )
        db.execute(
            "INSERT INTO turn (id, lane, session, generation, attempt, state, source, started_at)"
            " VALUES (1, 'c1', 's', 0, 1, 'running', ?, 1)",
            (source,),
        )
        db.execute("""INSERT INTO entry VALUES (1,'s',1,'{"role":"user","text":"one"}',1)""")
        for number, state in ((1, "taken"), (2, "queued")):
            text = {1: "one", 2: "two"}[number]
            db.execute(
                "INSERT INTO inbox (id, lane, dedupe, kind, payload, state, turn, at)"
                " VALUES (?, 'c1', ?, 'message', ?, ?, ?, 1)",
                (
                    number,
                    text,
                    f'{{"source":{source},"text":"{text}","event_id":"{text}"}}',
                    state,
                    1 if number == 1 else None,
                ),
            )
    db.close()
    assert _version(file) == 2
    store = SqliteStore.open(file)
    assert _version(file) == max(migrations())
    assert await store.drop_unwaited() == 0
    assert await store.recover("new") == 1
    for text in ("one", "two"):
        claim = await claim_one(store, owner="new")
        assert [taken.message.text for taken in claim.messages] == [text]
        assert claim.messages[0].message.request is None
        await store.commit(claim, TurnEnd("done"))
    await ask(store, asked("three"))
    await store.commit(await claim_one(store), TurnEnd("done"))
    assert await words(store) == ["one", "two", "three"]
    assert (await store.open_request(a_record()))[1]
    await store.close()
    assert file.with_name(f"{file.name}.schema-2.backup").exists()


async def test_a_database_from_before_there_were_hands_goes_on(tmp_path: Path) -> None:
    """Who spoke and what it cost is known of old turns too; what is said is found."""
    file = tmp_path / "parley.db"
    migrate(file, {number: script for number, script in migrations().items() if number <= 3})
    sources = [
        {"platform": PLATFORM, "chat_id": "c1", "chat_type": "dm", "user_id": "alice"},
        {"platform": PLATFORM, "chat_id": "c1", "chat_type": "dm", "user_id": ""},
        {"platform": PLATFORM, "chat_type": "dm"},
    ]
    with sqlite3.connect(file) as db:
        db.execute("INSERT INTO session (id, lane, created_at, updated_at) VALUES ('s','c1',1,1)")
        db.execute(
            "INSERT INTO lane (key, platform, session, state) VALUES ('c1',?,'s','idle')",
            (PLATFORM,),
        )
        db.execute("INSERT INTO work VALUES ('w', 's', 'dead', 1)")
        for number, source in enumerate(sources, start=1):
            db.execute(
                "INSERT INTO turn (id, lane, session, generation, attempt, state, source,"
                " started_at, ended_at) VALUES (?, 'c1', 's', 0, 1, 'done', ?, 1, 2)",
                (number, json.dumps(source)),
            )
            body = json.dumps({"role": "user", "text": f"key {number}"})
            db.execute("INSERT INTO entry VALUES (?, 's', ?, ?, 1)", (number, number, body))
            db.execute(
                "INSERT INTO usage VALUES (?, 's', ?, 'p', 'm', 10, 5, 0, 100)", (number, number)
            )
    db.close()
    store = SqliteStore.open(file)
    assert _version(file) == max(migrations())
    for number, source in enumerate(sources, start=1):
        person = person_of(SessionSource.from_dict(source))
        found = await store.search_entries("key", person=person)
        assert [entry.excerpt for entry in found] == [f"key {number}"]
        [place] = await store.conversations(person)
        assert place.source == SessionSource.from_dict(source)
    payer = Payer("test:alice", "s")
    limits = [Limit(whose, "month", 0.0, 200.0) for whose in ("profile", "user", "session")]
    assert await store.spent(payer, limits) == [Spent(45), Spent(15), Spent(45)]
    assert await store.works(running=False) == []
    assert await store.delete_session("s")
    await store.close()


async def test_a_database_from_before_people_were_known_goes_on(tmp_path: Path) -> None:
    """Replies that waited go out, without files; everyone is new once."""
    file = tmp_path / "parley.db"
    migrate(file, {number: script for number, script in migrations().items() if number <= 4})
    source = f'{{"platform":"{PLATFORM}","chat_id":"c1","chat_type":"dm"}}'
    with sqlite3.connect(file) as db:
        db.execute("INSERT INTO session (id, lane, created_at, updated_at) VALUES ('s','c1',1,1)")
        db.execute(
            "INSERT INTO lane (key, platform, session, state) VALUES ('c1',?,'s','idle')",
            (PLATFORM,),
        )
        for state in ("sent", "sending", "waiting", "dead"):
            db.execute(
                "INSERT INTO outbox (lane, platform, session, dedupe, source, text, kind, answers,"
                " state, owner, next_at, at) VALUES ('c1', ?, 's', ?, ?, ?, 'reply', '[]', ?,"
                " 'old', 1, 1)",
                (PLATFORM, state, source, state, state),
            )
        db.execute("INSERT INTO person_setting VALUES ('test:alice', 'safety', 'on')")
    db.close()
    store = SqliteStore.open(file)
    assert _version(file) == max(migrations())
    await store.resume_sends(PLATFORM, "new", repeats=True)
    for text in ("sending", "waiting"):
        [reply] = await store.lease_deliveries(PLATFORM, "new", 9)
        assert (reply.text, reply.attachments) == (text, ())
        await store.delivered(reply.id)
    assert [reply.attachments for reply in (await store.health()).dead] == [()]
    assert await store.person_settings("test:alice") == {"safety": "on"}
    assert (await store.get_or_create_user("alice", "test")).is_new
    chat = await store.chat_of_session("test:alice", "s")
    assert (chat.label, chat.lane) == ("C1", "c1")
    assert await store.unplaced_chats() == []
    assert await store.marks("") == {}
    await store.close()
    assert file.with_name(f"{file.name}.schema-4.backup").exists()


async def test_an_upgrade_that_breaks_off_changes_nothing(file: Path) -> None:
    old = _version(file)
    with pytest.raises(StoreError, match="cannot be upgraded"):
        migrate(file, {**migrations()} | _BREAKS_OFF)
    assert _version(file) == old
    store = SqliteStore.open(file)
    assert (await say(store, "hello")).state == "duplicate"
    await store.close()
    migrate(file, {**migrations()} | _ADDS_A_COLUMN)
    assert _version(file) == _NEXT


async def test_a_newer_database_is_refused_untouched(file: Path) -> None:
    _set_version(file, _NEXT)
    before = file.read_bytes()
    with pytest.raises(StoreError, match="newer Parley"):
        SqliteStore.open(file)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir() if "backup" in path.name] == []


@pytest.mark.parametrize("content", [b"notes\n", b"x" * 5000, b"SQLite format 3\0" + b"\1" * 5000])
def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "parley.db"
    file.write_bytes(content)
    with pytest.raises(StoreError):
        SqliteStore.open(file)
    assert file.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_another_programs_database_is_refused_untouched(tmp_path: Path) -> None:
    file = tmp_path / "parley.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE recipe (name TEXT)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore.open(file)
    assert file.read_bytes() == before


async def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    file = tmp_path / "parley.db"
    file.touch()
    store = SqliteStore.open(file)
    assert (await say(store, "hello")).state == "queued"
    await store.close()


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, not a directory")
    with pytest.raises(StoreError, match="home"):
        SqliteStore.open(tmp_path / "home" / "parley.db")


async def test_a_path_with_odd_characters_is_one_path(tmp_path: Path) -> None:
    file = tmp_path / "wh?t #1 50%25" / "parley.db"
    store = SqliteStore.open(file)
    await say(store, "hello")
    await store.close()
    assert file.exists()


async def test_what_was_allowed_for_commands_by_their_text_alone_is_asked_again(
    tmp_path: Path,
) -> None:
    file = tmp_path / "parley.db"
    scripts = migrations()
    number = next(n for n, text in scripts.items() if "question ADD COLUMN once" in text)
    migrate(file, {n: text for n, text in scripts.items() if n < number})
    with sqlite3.connect(file) as db:
        for tool in ("terminal", "process", "mail__send"):
            db.execute(
                "INSERT INTO permit (scope, session, person, tool, digest, what, at)"
                " VALUES ('always', '', 'test:ann', ?, 'd', 'do it', 1)",
                (tool,),
            )
    db.close()
    store = SqliteStore.open(file)
    assert [grant.tool for grant in await store.grants("test:ann")] == ["mail__send"]
    call = {"session": "s", "person": "test:ann", "digest": "d"}
    assert not await store.is_granted(tool="terminal", **call)
    await store.close()
