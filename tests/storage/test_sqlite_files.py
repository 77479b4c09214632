"""The database file itself: made, migrated with a copy beside it, or refused untouched."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from parley.storage.contract import StoreError
from parley.storage.sqlite import SqliteStore
from parley.storage.sqlite.migrate import migrate, migrations, schema_version
from tests.builders import say
from tests.storage.conformance.base import current

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
