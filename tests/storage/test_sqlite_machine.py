"""Random operations on SQLite."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings

from parley.storage.contract import Store
from parley.storage.sqlite import SqliteStore
from tests.storage.conformance.machine import LaneMachine


class _SqliteMachine(LaneMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()

    async def open_store(self) -> Store:
        return SqliteStore.open(Path(self._folder.name) / "parley.db")

    def teardown(self) -> None:
        super().teardown()
        self._folder.cleanup()


TestSqliteMachine = _SqliteMachine.TestCase
TestSqliteMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
