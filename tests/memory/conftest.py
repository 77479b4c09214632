"""A real store, and the folder beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.storage.sqlite.store import SqliteStore
from tests.memory.scene import Model, Scene


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "parley.db")
    yield opened
    await opened.close()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A store of its own, people who talk, and a model by script."""
    made = Scene(tmp_path, Model())
    yield made
    await made.close()
