"""A profile in a directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.profiles import Profile


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    home = tmp_path / "home"
    home.mkdir()
    return Profile("default", home)
