"""Two houses, the one behind the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.profiles import Profile
from tests.proxy.houses import AskingDesk, Pair, ProxyHouse, ServedHouse
from tests.servers.scripted_model import ScriptedModel

__all__: list[str] = []


@pytest.fixture
async def pair(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Pair]:
    """Not open yet."""
    far = ServedHouse(Profile("default", tmp_path / "far"), model)
    near = ProxyHouse(Profile("default", tmp_path / "near"), model, far)
    near.desk_type = AskingDesk
    for house in (near, far):
        house.settings["access"] = {"owners": ["desk:ann"]}
    made = Pair(near, far, model)
    yield made
    await made.close()
