"""A household for each test."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.household import Household
from tests.servers.scripted_model import ScriptedModel

__all__: list[str] = []


@pytest.fixture
def household(tmp_path: Path, far_model: ScriptedModel) -> Household:
    made = Household(tmp_path / "home", far_model)
    made.configure()
    return made


@pytest.fixture
def kept_log() -> Iterator[None]:
    """A gateway in this process takes over its log; afterwards it is as it was."""
    root = logging.root
    handlers, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
