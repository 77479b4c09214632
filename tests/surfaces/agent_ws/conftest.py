"""A house that is served as a direct agent."""

from __future__ import annotations

import pytest

from tests.gateway.house import House
from tests.surfaces.agent_ws.line import DirectHouse

__all__: list[str] = []


@pytest.fixture
async def direct(house: House) -> DirectHouse:
    made = DirectHouse(house)
    await made.open()
    return made
