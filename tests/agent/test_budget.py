"""Budgets: which limits hold when, what is said when one is reached, and who pays for a turn."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.budget import Budget, describe
from parley.agent.person import Plan
from parley.config.settings import Settings
from parley.storage.hands import Limit, Overrun, Spent

ZONES = [
    "UTC",
    "Europe/Paris",
    "America/Sao_Paulo",  # midnight is left out in spring
    "America/Havana",  # midnight comes twice in autumn
    "America/St_Johns",  # a minute past midnight the clock goes back over it
    "Pacific/Apia",  # a whole day is left out
    "Asia/Kathmandu",
]
MOMENTS = st.datetimes(
    min_value=datetime(1990, 1, 1), max_value=datetime(2045, 1, 1), timezones=st.just(UTC)
).map(datetime.timestamp)
NOON = datetime(2026, 3, 15, 12, tzinfo=UTC).timestamp()


def a_budget(zone: str | None = "UTC", **budgets: Any) -> Budget:
    return Budget(Settings.model_validate({"budgets": {"timezone": zone, **budgets}}))


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def span(budget: Budget, period: str, now: float) -> tuple[float, float]:
    (limit,) = (limit for limit in budget.limits(now) if limit.period == period)
    return limit.since, limit.until


BOTH = {"day_tokens": 10, "month_tokens": 100}


def test_without_budgets_there_is_no_limit() -> None:
    budget = a_budget()
    assert not budget.is_limited
    assert not budget.limits_money
    assert budget.limits(NOON) == ()


def test_a_plan_is_a_limit_of_the_person_for_the_month() -> None:
    budget = a_budget()
    (limit,) = budget.limits(NOON, Plan("Beta", 1_000))
    assert (limit.whose, limit.period, limit.tokens, limit.plan) == ("user", "month", 1_000, "Beta")
    assert (limit.since, limit.until) == (moment("2026-03-01T00:00Z"), moment("2026-04-01T00:00Z"))
    assert describe(limit, Spent(512)) == "Your plan Beta: 512 of 1,000 tokens this month."
    assert budget.sentence(Overrun(limit, Spent(1_024)), Spent(90)) == (
        "Your plan Beta is used up: 1,024 of 1,000 tokens this month; it begins anew on "
        "2026-04-01 at 00:00 (UTC), and an owner can give you more."
    )
    both = a_budget(user={"day_tokens": 5}).limits(NOON, Plan("Beta", 1_000))
    assert [each.plan for each in both] == [None, "Beta"]


def test_each_budget_that_is_set_is_a_limit() -> None:
    budget = a_budget(
        profile={"day_tokens": 1_000, "day_money": 0.1},
        user={"month_money": 2.5},
        session={"month_tokens": 7},
    )
    day = moment("2026-03-15T00:00+00:00"), moment("2026-03-16T00:00+00:00")
    month = moment("2026-03-01T00:00+00:00"), moment("2026-04-01T00:00+00:00")
    assert budget.is_limited
    assert budget.limits_money
    assert budget.limits(NOON) == (
        Limit("profile", "day", *day, 1_000, 100_000),
        Limit("user", "month", *month, None, 2_500_000),
        Limit("session", "month", *month, 7, None),
    )


def test_a_budget_of_no_money_is_a_limit() -> None:
    (limit,) = a_budget(user={"day_money": 0}).limits(NOON)
    assert limit.micros == 0


@pytest.mark.parametrize(
    ("zone", "now", "day"),
    [
        ("Europe/Paris", "2026-03-29T12:00+02:00", "2026-03-29T00:00+01:00, 23 hours"),
        ("Europe/Paris", "2026-10-25T02:30+01:00", "2026-10-25T00:00+02:00, 25 hours"),
        ("Europe/Paris", "2026-03-14T23:30+00:00", "2026-03-15T00:00+01:00, 24 hours"),
        # It begins at one o'clock.
        ("America/Sao_Paulo", "2018-11-04T12:00-02:00", "2018-11-04T01:00-02:00, 23 hours"),
        # Its midnight has come once, and comes again.
        ("America/St_Johns", "2010-11-06T23:30-03:30", "2010-11-07T00:00-02:30, 25 hours"),
        # The next day is left out.
        ("Pacific/Apia", "2011-12-29T23:00-10:00", "2011-12-29T00:00-10:00, 24 hours"),
    ],
)
def test_a_day_is_as_long_as_the_clock_makes_it(zone: str, now: str, day: str) -> None:
    since, until = span(a_budget(zone, user=BOTH), "day", moment(now))
    begins, hours = day.removesuffix(" hours").split(", ")
    assert since == moment(begins)
    assert until - since == int(hours) * 3_600


@pytest.mark.parametrize(
    ("now", "since", "until"),
    [
        ("2026-12-31T23:30+01:00", "2026-12-01T00:00+01:00", "2027-01-01T00:00+01:00"),
        ("2027-01-01T00:00+01:00", "2027-01-01T00:00+01:00", "2027-02-01T00:00+01:00"),
        ("2026-03-31T23:59+02:00", "2026-03-01T00:00+01:00", "2026-04-01T00:00+02:00"),
        ("2026-03-31T22:00+00:00", "2026-04-01T00:00+02:00", "2026-05-01T00:00+02:00"),
    ],
)
def test_a_month_begins_with_its_first_day_there(now: str, since: str, until: str) -> None:
    found = span(a_budget("Europe/Paris", user=BOTH), "month", moment(now))
    assert found == (moment(since), moment(until))


def test_a_month_whose_first_midnight_comes_twice_begins_once() -> None:
    budget = a_budget("America/St_Johns", user=BOTH)
    again = moment("2009-10-31T23:30-03:30")
    november = moment("2009-11-01T00:00-02:30"), moment("2009-12-01T00:00-03:30")
    assert span(budget, "month", again) == november


@given(MOMENTS, st.sampled_from(ZONES))
def test_now_is_in_its_day_and_month_and_they_follow_without_a_gap(now: float, zone: str) -> None:
    budget = a_budget(zone, user=BOTH)
    for period, longest in (("day", timedelta(hours=26)), ("month", timedelta(days=32))):
        since, until = span(budget, period, now)
        assert since <= now < until
        assert until - since <= longest.total_seconds()
        assert span(budget, period, since) == (since, until)
        assert span(budget, period, until)[0] == until
        assert span(budget, period, since - 0.5)[1] == since


@given(MOMENTS, st.sampled_from(["UTC", "Europe/Paris", "Asia/Kathmandu"]))
def test_a_day_begins_at_midnight_and_a_month_on_the_first(now: float, zone: str) -> None:
    budget = a_budget(zone, user=BOTH)
    there = datetime.fromtimestamp(now, ZoneInfo(zone))
    midnight = datetime.fromtimestamp(span(budget, "day", now)[0], ZoneInfo(zone))
    first = datetime.fromtimestamp(span(budget, "month", now)[0], ZoneInfo(zone))
    assert midnight.replace(tzinfo=None) == datetime.combine(there.date(), datetime.min.time())
    assert first.date() == date(there.year, there.month, 1)


def test_the_machines_own_days_count_where_no_zone_is_set() -> None:
    since, until = span(a_budget(None, user=BOTH), "day", NOON)
    assert since <= NOON < until
    assert datetime.fromtimestamp(since).hour == 0


def test_a_call_may_take_its_prompt_and_its_longest_answer() -> None:
    budget = a_budget()
    assert budget.estimate(1_000, 500) == 1_500
    assert budget.estimate(1_000, None) == 3_048


def over(
    whose: Any = "user",
    period: Any = "day",
    *,
    tokens: int | None = None,
    micros: int | None = None,
    spent: Spent,
) -> Overrun:
    until = moment("2026-03-16T00:00+01:00")
    return Overrun(Limit(whose, period, until - 86_400, until, tokens, micros), spent)


def test_an_overrun_is_told_in_one_sentence() -> None:
    said = a_budget("Europe/Paris").sentence(over(tokens=10_000, spent=Spent(9_000)), Spent(3_048))
    assert said == (
        "Your budget for today does not reach for this: 9,000 of 10,000 tokens are spent or held, "
        "and it may take 3,048 more, so the model was not asked; the budget begins anew on "
        "2026-03-16 at 00:00 (Europe/Paris)."
    )


@pytest.mark.parametrize(
    ("whose", "period", "begins"),
    [
        ("profile", "month", "This profile's budget for this month "),
        ("session", "day", "This conversation's budget for today "),
        ("user", "month", "Your budget for this month "),
    ],
)
def test_it_is_said_whose_budget_it_is(whose: str, period: str, begins: str) -> None:
    overrun = over(whose, period, micros=5_000_000, spent=Spent(9, 4_999_000))
    said = a_budget().sentence(overrun, Spent(10, 250_000))
    assert said.startswith(begins)
    assert "$4.9990 of $5.00 are spent or held, and it may take $0.25 more" in said


def test_of_tokens_and_money_the_one_that_does_not_reach_is_told() -> None:
    overrun = over(tokens=100, micros=1_000_000, spent=Spent(10, 990_000))
    assert "$0.99 of $1.00" in a_budget().sentence(overrun, Spent(10, 20_000))
    assert "10 of 100 tokens" in a_budget().sentence(overrun, Spent(91, 0))
