"""A household for each test."""

from __future__ import annotations

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
