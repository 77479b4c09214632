"""Moments and spans, as a model writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.tools import ToolError
from parley.agent.tools.when import (
    cron_times,
    find_zone,
    machine_zone,
    parse_at,
    parse_every,
    span,
    told,
)

PARIS = ZoneInfo("Europe/Paris")
LONDON = ZoneInfo("Europe/London")
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()
ZONES = [ZoneInfo(name) for name in ("UTC", "Europe/Paris", "Asia/Kathmandu", "America/St_Johns")]


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("2026-03-02T09:00", "2026-03-02T09:00+01:00"),
        ("10m", "2026-03-01T12:10+00:00"),
        ("in 10 minutes", "2026-03-01T12:10+00:00"),
        ("1 hour and 30 min", "2026-03-01T13:30+00:00"),
        ("+2 days", "2026-03-03T12:00+00:00"),
        ("tomorrow 9:00", "2026-03-02T09:00+01:00"),
        ("tomorrow at 9", "2026-03-02T09:00+01:00"),
        ("18:30", "2026-03-01T18:30+01:00"),
        ("7am", "2026-03-02T07:00+01:00"),
        ("12pm tomorrow", "2026-03-02T12:00+01:00"),
        ("today, 20:15", "2026-03-01T20:15+01:00"),
        ("Friday at 8:05", "2026-03-06T08:05+01:00"),
        ("sunday 10:00", "2026-03-08T10:00+01:00"),
        ("2026-03-02 09:00:30", "2026-03-02T09:00:30+01:00"),
        ("2026-03-02T09", "2026-03-02T09:00+01:00"),
        ("2026-03-02T09:00Z", "2026-03-02T09:00+00:00"),
        ("2026-03-02T09:00-05:00", "2026-03-02T09:00-05:00"),
        ("2026-07-01T09:00", "2026-07-01T09:00+02:00"),
        ("+10m", "2026-03-01T12:10+00:00"),
        ("+ 2 h", "2026-03-01T14:00+00:00"),
        ("+3D", "2026-03-04T12:00+00:00"),
        ("+1w", "2026-03-08T12:00+00:00"),
    ],
)
def test_a_moment_is_understood(text: str, means: str) -> None:
    assert parse_at(text, PARIS, NOW) == moment(means)


def test_an_hour_that_comes_twice_is_meant_the_first_time() -> None:
    assert parse_at("2026-10-25T02:30", PARIS, NOW) == moment("2026-10-25T02:30+02:00")


def test_an_hour_that_is_left_out_comes_as_much_later() -> None:
    at = parse_at("2026-03-29T02:30", PARIS, NOW)
    assert at == moment("2026-03-29T03:30+02:00")
    assert told(at, PARIS) == "Sun 2026-03-29 03:30 (Europe/Paris)"


@pytest.mark.parametrize(
    "text", ["2026-03-01T12:59", "2020-01-01T00:00", "+0m", "0001-01-01T00:00", "1960-01-01T00:00Z"]
)
def test_what_is_past_is_refused_with_the_time_it_is(text: str) -> None:
    with pytest.raises(ToolError, match=r"is past: it is Sun 2026-03-01 13:00 \(Europe/Paris\)"):
        parse_at(text, PARIS, NOW)


@pytest.mark.parametrize("text", ["2037-01-01T00:00", "+4000d", "+999999999w", "9999-12-31T23:59"])
def test_what_is_too_far_away_is_refused(text: str) -> None:
    with pytest.raises(ToolError, match="ten years"):
        parse_at(text, PARIS, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "tomorrow",
        "at 9",
        "9:00 or so",
        "2026-13-01T00:00",
        "+10",
        "+m",
        "+1.5h",
        "+-3m",
        "+10y",
        "+١m",
    ],
)
def test_what_is_no_moment_is_answered_with_how_to_write_one(text: str) -> None:
    with pytest.raises(ToolError, match=r"\+10m"):
        parse_at(text, PARIS, NOW)


def test_a_day_without_a_time_is_asked_for_one() -> None:
    with pytest.raises(ToolError, match=r"names no time of day; write such as 2026-12-24T09:00"):
        parse_at("2026-12-24", PARIS, NOW)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1m", 60), ("15 m", 900), ("2H", 7_200), ("1d", 86_400), ("1w", 604_800)]
)
def test_a_span_is_understood(text: str, seconds: float) -> None:
    assert parse_every(text) == seconds


@pytest.mark.parametrize("text", ["30s", "0m", "-5m", "hour", "5", "1.5h", "999999999d", ""])
def test_what_is_no_span_or_too_short_is_refused(text: str) -> None:
    with pytest.raises(ToolError, match=r"`every` is"):
        parse_every(text)


@given(st.integers(min_value=1, max_value=10_000))
def test_a_span_is_told_as_it_is_read(minutes: int) -> None:
    assert parse_every(span(minutes * 60.0)) == minutes * 60


@given(
    st.datetimes(min_value=datetime(2026, 3, 3), max_value=datetime(2035, 12, 1)),
    st.sampled_from(ZONES),
)
def test_a_local_time_is_that_time_there_or_left_out(naive: datetime, zone: ZoneInfo) -> None:
    naive = naive.replace(microsecond=0)
    there = datetime.fromtimestamp(parse_at(naive.isoformat(), zone, NOW), zone)
    gap = there.replace(tzinfo=None) - naive
    assert gap == timedelta(0) or timedelta(0) < gap <= timedelta(hours=1)
    if gap:
        back = naive.replace(tzinfo=zone).astimezone(UTC).astimezone(zone)
        assert back.replace(tzinfo=None) != naive


@given(st.text(max_size=40))
def test_whatever_is_written_gives_a_moment_to_come_or_a_sentence(text: str) -> None:
    try:
        assert NOW < parse_at(text, PARIS, NOW) <= NOW + 86_400 * 3_653
    except ToolError as error:
        assert str(error).endswith(".")


@given(
    st.from_regex(re.compile(r"[-0-9*/,LW#]{1,8}( [-0-9*/,LW#]{1,8}){4}", re.ASCII), fullmatch=True)
)
def test_whatever_cron_line_is_written_gives_times_to_come_or_a_sentence(cron: str) -> None:
    try:
        first, second = cron_times(cron, PARIS, NOW)
        assert NOW < first < second
    except ToolError as error:
        assert "comes due" in str(error)


def test_a_cron_line_keeps_to_the_clock_on_the_wall_when_it_is_changed() -> None:
    before = moment("2026-03-27T12:00+00:00")
    times = cron_times("0 9 * * *", PARIS, before, count=3)
    assert [told(at, PARIS)[4:20] for at in times] == [
        "2026-03-28 09:00",
        "2026-03-29 09:00",
        "2026-03-30 09:00",
    ]
    assert times[1] - times[0] == 23 * 3_600


@pytest.mark.parametrize("cron", ["* * * *", "* * * * * *", "@daily", ""])
def test_a_cron_line_has_five_fields(cron: str) -> None:
    with pytest.raises(ToolError, match="five fields"):
        cron_times(cron, PARIS, NOW)


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "61 * * * *", "a b c d e"])
def test_a_cron_line_that_never_comes_due_is_refused(cron: str) -> None:
    with pytest.raises(ToolError, match="comes due"):
        cron_times(cron, PARIS, NOW)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "x" * 5000, "Europe", "\0"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ToolError, match="is not a known time zone"):
        find_zone(name)


@pytest.mark.parametrize("name", [None, ""])
def test_the_machines_zone_is_taken_where_none_is_named(
    name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert find_zone(name).key == "Asia/Tokyo"


@pytest.mark.parametrize("value", ["", "CET-1CEST,M3.5.0,M10.5.0/3", "/etc/localtime"])
def test_a_machine_that_names_no_zone_still_has_one(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", value)
    assert ZoneInfo(machine_zone().key) == machine_zone()
