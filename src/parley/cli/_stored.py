"""The store of a home as it is: opened for a command, and never upgraded by one."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING

from parley.profiles import Profile
from parley.storage.contract import StoreError

if TYPE_CHECKING:
    from parley.storage.contract import Store

__all__ = ["stored"]


@asynccontextmanager
async def stored(profile: Profile, *, make: bool = False) -> AsyncIterator[Store | None]:
    """The store, beside a gateway that may be using it; None when there is none yet.

    With `make` it is made then: what a person writes down may come before anything was said.
    """
    file = profile.database_file
    try:
        if not _has_rows(file) and not make:
            yield None
            return
        from parley.storage.sqlite import SqliteStore

        store = SqliteStore.open(file)
        try:
            yield store
        finally:
            await store.close()
    except sqlite3.Error as error:
        raise StoreError(
            f"The database {file} cannot be read ({error}); `parley doctor` says more."
        ) from error


def _has_rows(file: Path) -> bool:
    """Whether the file holds our tables, in this version's shape."""
    from parley.storage.sqlite.migrate import migrations, schema_version

    try:
        if file.stat().st_size == 0:
            return False
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"The database {file} cannot be read: {error.strerror}.") from error
    uri = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        version = schema_version(connection)
    if 0 < version < max(migrations()):
        raise StoreError(
            f"The database {file} is of an earlier version; start `parley gateway run` or "
            "`parley chat` once, which upgrades it and keeps a copy."
        )
    return version > 0
