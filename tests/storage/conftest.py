"""The conformance suite is not a test file by name, so its asserts are asked for here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.storage.sqlite import SqliteStore

pytest.register_assert_rewrite("tests.storage.conformance", "tests.storage.tending")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A store on a file of its own."""
    opened = SqliteStore.open(tmp_path / "parley.db")
    yield opened
    await opened.close()
