"""A house with an API, and a program that uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from tests.gateway.house import House
from tests.surfaces.api.program import ApiHouse, Program
from tests.surfaces.api.served import Served, served_api

__all__: list[str] = []


@pytest.fixture
async def api_house(house: House) -> ApiHouse:
    """Open, with the agent's usual tools."""
    made = ApiHouse(house)
    await made.open()
    return made


@pytest.fixture
async def program(api_house: ApiHouse) -> AsyncIterator[Program]:
    async with api_house.program() as made:
        yield made


@pytest.fixture
async def served(house: House) -> AsyncIterator[Served]:
    """The same for OpenAI's client, and for whoever calls with keys of his own."""
    async with served_api(house) as opened:
        yield opened


@pytest.fixture
async def client(served: Served) -> AsyncOpenAI:
    """OpenAI's own client, with the key of this machine."""
    return await served.client()
