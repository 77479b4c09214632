"""A disk that is full for a while."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from parley.storage.sqlite import SqliteStore

__all__ = ["Full", "by_the_database", "by_the_kernel"]

Full: TypeAlias = Callable[[SqliteStore, Path], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def by_the_kernel(store: SqliteStore, file: Path) -> AsyncIterator[None]:
    """This process may write no byte past the length of the log: the commit fails."""
    log = file.with_name(f"{file.name}-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@asynccontextmanager
async def by_the_database(store: SqliteStore, file: Path) -> AsyncIterator[None]:
    """The file may have no page more than it has: the statement fails."""

    async def most_pages(number: int) -> None:
        limit = f"PRAGMA max_page_count = {number}"
        await store._engine.write(lambda db: db.execute(limit).fetchone())

    await most_pages(1)
    try:
        yield
    finally:
        await most_pages(1_000_000)
