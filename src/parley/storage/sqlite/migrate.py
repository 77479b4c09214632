"""Bring a database file to this version's schema, with a copy of the old file beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from parley.storage.contract import StoreError
from parley.storage.sqlite.engine import connect

__all__ = ["latest_version", "migrate", "migrations", "open_migrated", "schema_version"]

_OLDEST_SQLITE = (3, 35, 0)


def latest_version() -> int:
    return max(migrations())


def schema_version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(file: Path, scripts: Mapping[int, str] | None = None) -> None:
    """Bring the file to the newest schema, or to that of the `scripts`."""
    open_migrated(file, scripts).close()


def open_migrated(file: Path, scripts: Mapping[int, str] | None = None) -> sqlite3.Connection:
    """Run the numbered migrations that this file has not seen; refuse a newer file untouched."""
    scripts = migrations() if scripts is None else scripts
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise StoreError(
            f"This Python brings SQLite {sqlite3.sqlite_version}; Parley needs 3.35 or newer."
        )
    existed = file.exists() and file.stat().st_size > 0
    if existed and _up_to_date(file, max(scripts)):
        return connect(file)
    _make_private(file)
    connection = connect(file)
    try:
        _upgrade(connection, file, scripts, keep_copy=existed)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise StoreError(f"The database {file} cannot be upgraded: {error}.") from error
    return connection


def _make_private(file: Path) -> None:
    """Before it is opened: the log beside it takes after it."""
    try:
        file.touch(mode=0o600)
        file.chmod(0o600)
    except OSError as error:
        raise StoreError(f"The database {file} cannot be opened: {error.strerror}.") from error


def _up_to_date(file: Path, latest: int) -> bool:
    connection = connect(file, read_only=True)
    try:
        version = schema_version(connection)
        foreign = version == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        raise StoreError(
            f"{file} is not a Parley database ({error}); move it away or restore a backup."
        ) from error
    finally:
        connection.close()
    if foreign:
        raise StoreError(f"{file} is another program's database; move it away.")
    if version > latest:
        raise StoreError(
            f"{file} was made by a newer Parley (schema {version}, this one knows "
            f"{latest}); upgrade Parley, or set PARLEY_HOME to another directory."
        )
    return version == latest


def _upgrade(
    connection: sqlite3.Connection, file: Path, scripts: Mapping[int, str], *, keep_copy: bool
) -> None:
    version = schema_version(connection)
    if keep_copy:
        copy = file.with_name(f"{file.name}.schema-{version}.backup")
        with sqlite3.connect(copy) as target:
            connection.backup(target)
        target.close()
        copy.chmod(0o600)
    connection.execute("BEGIN IMMEDIATE")
    # Another process may have upgraded while this one waited for the lock.
    version = schema_version(connection)
    for number, script in sorted(scripts.items()):
        if number > version:
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
    connection.execute("COMMIT")


@cache
def migrations() -> Mapping[int, str]:
    """Every script that comes with this version, by its number."""
    folder = files("parley.storage.sqlite").joinpath("migrations")
    return {
        int(file.name.partition("_")[0]): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


def _statements(script: str) -> list[str]:
    """`executescript` would commit by itself, so statements are split here."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found
