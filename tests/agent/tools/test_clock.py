"""`now` tells the time, in the zone that is asked for."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from parley.agent.tools import ToolResult
from parley.agent.tools.clock import now
from parley.protocol import ToolCall
from tests.agent.builders import context


async def ask(**arguments: object) -> ToolResult:
    return await now.run(ToolCall("c1", "now", arguments), context())


async def test_it_tells_weekday_date_time_and_offset() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    told = (await ask(timezone="UTC")).text
    shape = re.fullmatch(r"(\w+), (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC \(UTC\+0000\)", told)
    assert shape is not None
    moment = datetime.fromisoformat(shape[2]).replace(tzinfo=UTC)
    assert before <= moment <= datetime.now(UTC)
    assert moment.strftime("%A") == shape[1]


@pytest.mark.parametrize(
    ("zone", "offset"), [("Asia/Kolkata", "UTC+0530"), ("Asia/Tokyo", "UTC+0900")]
)
async def test_it_tells_the_time_elsewhere(zone: str, offset: str) -> None:
    assert offset in (await ask(timezone=zone)).text


async def test_it_tells_the_machines_own_time() -> None:
    assert (await ask()).ok
    assert (await ask(timezone=None)).ok


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", "x" * 5000, "Europe", "\0", ""]
)
async def test_what_is_no_time_zone_is_answered(zone: str) -> None:
    result = await ask(timezone=zone)
    if zone:
        assert not result.ok
        assert "is no time zone" in result.text
    else:
        assert result.ok
