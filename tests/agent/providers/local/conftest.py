"""Fixtures: a file server, and the small model installed once into the normal cache."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from parley.agent.providers.local.errors import OfflineError
from parley.agent.providers.local.install import install
from parley.agent.providers.local.provider import LocalProvider
from parley.agent.providers.local.weights import CATALOGUE, cache_directory, installed_file
from parley.config.settings import LocalModelSettings
from tests.agent.providers.local.file_server import FileServer, serving


@pytest.fixture
def files() -> Iterator[FileServer]:
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def installed_cache() -> Path:
    """The normal cache, with SmolLM2 in it."""
    cache = cache_directory()
    try:
        install(CATALOGUE["smollm2"], cache=cache)
    except OfflineError as error:
        pytest.skip(f"SmolLM2 is not installed and cannot be fetched: {error}")
    return cache


@pytest.fixture(scope="session")
def smollm2(installed_cache: Path) -> LocalModelSettings:
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    weights = installed_file(CATALOGUE["smollm2"], installed_cache)
    return LocalModelSettings(weights=str(weights), context_tokens=2048)


@pytest_asyncio.fixture
async def provider(smollm2: LocalModelSettings) -> AsyncIterator[LocalProvider]:
    """A provider of its own for a test that harms it."""
    made = LocalProvider(smollm2)
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_provider(
    smollm2: LocalModelSettings,
) -> AsyncIterator[LocalProvider]:
    """One provider, already awake, for all tests of a module that only ask it something."""
    made = LocalProvider(smollm2)
    yield made
    await made.close()
