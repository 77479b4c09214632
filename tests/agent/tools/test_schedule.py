"""`schedule` plans what comes into a conversation by itself, and never promises in vain."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from parley.agent.taint import Taint
from parley.agent.tools import ToolResult
from parley.agent.tools.schedule import ScheduleArguments, schedule
from tests.agent.builders import context
from tests.agent.tools.lent import SmallHands, use


async def add(hands: SmallHands, *, call: str = "turn 1 call 1", **arguments: Any) -> ToolResult:
    return await use(schedule, hands, call=call, action="add", **{"text": "stretch"} | arguments)


def test_different_plans_are_different_questions() -> None:
    assert schedule.guard is not None
    plans = (
        {"at": "15m"},
        {"every": "15m"},
        {"cron": "15m"},
        {"at": "15m", "timezone": "Pacific/Auckland"},
        {"at": "15m", "timezone": "America/Los_Angeles"},
    )
    taint = Taint(("a page",), ())
    asked = {
        schedule.guard(ScheduleArguments(action="add", text="stretch", **plan), context(), taint)
        for plan in plans
    }
    assert len(asked) == len(plans)


async def test_a_plan_for_one_moment_says_when_it_comes() -> None:
    hands = SmallHands()
    before = time.time()
    said = await add(hands, at="+10m", timezone="Europe/Paris")
    (record,) = hands.jobs.values()
    at = record.job.at
    assert at is not None
    assert before + 600 <= at <= time.time() + 600
    assert (record.job.every, record.job.cron, record.job.timezone) == (None, None, "Europe/Paris")
    assert record.job.id in said.text
    assert "(Europe/Paris)" in said.text


async def test_what_comes_in_later_says_that_it_was_planned_and_what_for() -> None:
    hands = SmallHands()
    await add(hands, every="2h", timezone="UTC")
    (record,) = hands.jobs.values()
    first, _, rest = record.job.message.text.partition("\n")
    assert rest == "stretch"
    assert first.startswith("[A reminder that you planned on ")
    assert f"{datetime.now(UTC):%Y-%m-%d}" in first
    assert first.endswith("(UTC), every 2h]")
    assert record.job.every == 7_200


async def test_a_cron_line_tells_its_next_two_times() -> None:
    hands = SmallHands()
    said = await add(hands, cron="0 9 1 1 *", timezone="Asia/Tokyo")
    year = datetime.now(UTC).year
    assert f"{year + 1}-01-01 09:00 (Asia/Tokyo) and " in said.text
    assert f"{year + 2}-01-01 09:00 (Asia/Tokyo)" in said.text
    (record,) = hands.jobs.values()
    assert (record.job.cron, record.job.timezone) == ("0 9 1 1 *", "Asia/Tokyo")


async def test_where_nothing_can_be_delivered_later_nothing_is_planned() -> None:
    hands = SmallHands()
    said = await use(
        schedule, hands, delivers=False, action="add", text="stretch", at="+10m", timezone="UTC"
    )
    assert not said.ok
    assert "nothing was planned; tell the person" in said.text
    assert not hands.jobs


async def test_what_is_planned_can_be_seen_and_cancelled_from_any_channel() -> None:
    hands = SmallHands()
    await add(hands, every="1d")
    (name,) = hands.jobs
    assert name in (await use(schedule, hands, delivers=False, action="list")).text
    assert (await use(schedule, hands, delivers=False, action="cancel", id=name)).ok
    assert not hands.jobs


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "exactly one"),
        ({"at": "", "every": "  ", "cron": None}, "exactly one"),
        ({"at": "+10m", "every": "1h"}, "exactly one"),
        ({"every": "1h", "cron": "* * * * *"}, "exactly one"),
        ({"at": "+10m", "text": ""}, "`text`"),
        ({"at": "+10m", "text": None}, "`text`"),
        ({"at": "+10m", "text": "x" * 2_001}, "`text`"),
        ({"at": "2001-01-01T00:00"}, "is past"),
        ({"every": "30s"}, "`every`"),
        ({"every": "0m"}, "a minute"),
        ({"cron": "* * * * * *"}, "five fields"),
        ({"at": "+10m", "timezone": "Mars/Olympus"}, "time zone"),
        ({"at": 5}, "`at`"),
    ],
)
async def test_what_does_not_fit_plans_nothing(arguments: dict[str, Any], sentence: str) -> None:
    hands = SmallHands()
    said = await add(hands, **arguments)
    assert not said.ok
    assert sentence in said.text
    assert not hands.jobs


async def test_a_call_that_is_made_again_plans_once() -> None:
    hands = SmallHands()
    await add(hands, at="+10m")
    (first,) = hands.jobs.values()
    again = await add(hands, at="+10m")
    assert again.ok
    assert list(hands.jobs.values()) == [first]
    await add(hands, call="turn 1 call 2", at="+10m")
    assert len(hands.jobs) == 2


async def test_there_are_fifty_plans_at_most() -> None:
    hands = SmallHands()
    for number in range(50):
        assert (await add(hands, call=f"call {number}", every="1d")).ok
    said = await add(hands, call="one more", every="1d")
    assert not said.ok
    assert "50 plans" in said.text
    assert len(hands.jobs) == 50
    assert (await add(hands, call="call 3", every="1d")).ok


async def test_the_list_tells_what_when_and_how_often() -> None:
    hands = SmallHands()
    assert (await use(schedule, hands, action="list")).text.startswith("Nothing is planned")
    await add(hands, call="1", every="90m", text="stretch\nand drink", timezone="UTC")
    await add(hands, call="2", cron="5 4 * * *", timezone="UTC")
    await add(hands, call="3", at="2035-05-05T05:05", timezone="UTC")
    lines = (await use(schedule, hands, action="list")).text.splitlines()
    names = list(hands.jobs)
    assert lines == [
        f"{names[0]}, next Wed 2033-05-18 03:33 (UTC), every 90m: stretch and drink",
        f"{names[1]}, next Wed 2033-05-18 03:33 (UTC), by cron 5 4 * * *: stretch",
        f"{names[2]}, next Sat 2035-05-05 05:05 (UTC): stretch",
    ]


@pytest.mark.parametrize("name", [None, "", "plan_000000000000", "x" * 500])
async def test_a_plan_that_is_not_there_cannot_be_cancelled(name: str | None) -> None:
    hands = SmallHands()
    await add(hands, every="1d")
    said = await use(schedule, hands, action="cancel", id=name)
    assert not said.ok
    assert "`list` shows them" in said.text
    assert len(said.text) < 150
    assert len(hands.jobs) == 1
