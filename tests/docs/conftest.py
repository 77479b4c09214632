"""What the pages take for granted: the small model is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.agent.providers.local.errors import OfflineError
from parley.agent.providers.local.install import install
from parley.agent.providers.local.weights import CATALOGUE, cache_directory


@pytest.fixture(scope="session")
def models() -> Path:
    """The normal cache, with SmolLM2 in it."""
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    cache = cache_directory()
    try:
        install(CATALOGUE["smollm2"], cache=cache)
    except OfflineError as error:
        pytest.skip(f"SmolLM2 is not installed and cannot be fetched: {error}")
    return cache
