"""A site on loopback, and its pages read by `web_fetch` as the agent would."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.agent.tools.web.reader import Reader
from tests.servers.web_site import WebSite

__all__: list[str] = []


@pytest.fixture
async def site() -> AsyncIterator[WebSite]:
    async with WebSite() as made:
        yield made


@pytest.fixture
def reader(site: WebSite) -> Reader:
    """It may fetch from the site, which is private, and from nowhere else."""
    return Reader(allow=[site.place])
