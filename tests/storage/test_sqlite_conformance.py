"""SQLite keeps every promise of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.storage.contract import RateLimit, Store
from parley.storage.sqlite import SqliteStore
from tests.storage.conformance import StoreConformance
from tests.storage.conformance.base import OpenStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "parley.db"


@pytest.fixture
def address(file: Path) -> str:
    return f"sqlite:{file}"


@pytest.fixture
async def open_store(file: Path) -> AsyncIterator[OpenStore]:
    opened: list[SqliteStore] = []

    async def open_it(*, rate_limit: RateLimit | None = None) -> Store:
        opened.append(SqliteStore.open(file, rate_limit=rate_limit))
        return opened[-1]

    yield open_it
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()


class TestSqlite(StoreConformance):
    """The whole suite, on a real file."""
