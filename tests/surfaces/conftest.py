"""A gateway with a terminal surface, and terminals that talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.surfaces.terminal.surface import TerminalSurface
from tests.gateway.house import House
from tests.surfaces.terminal import Line

__all__: list[str] = []


@pytest.fixture
def socket_file(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
async def served(house: House, socket_file: Path) -> House:
    """The house with its terminal surface open."""
    house.more_surfaces = [TerminalSurface(socket_file)]
    await house.open()
    return house


@pytest.fixture
async def line(served: House, socket_file: Path) -> AsyncIterator[Line]:
    """A terminal that has said hello."""
    async with Line(socket_file) as opened:
        await opened.hello()
        yield opened
