"""When a conversation is over: by a pause, by the day, or never; through every change of clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley.config.document import parse_document
from parley.config.errors import ConfigError
from parley.config.load import validate
from parley.config.settings import Reset, SessionSettings
from parley.protocol import ParleyError
from parley.sessions.policy import SessionPolicy, cutoff, is_trigger, policy_for

_HOUR = 3600.0
_DAILY = SessionPolicy(reset="daily", daily_at="02:30", timezone="Europe/Berlin")
_ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Havana"),
    *("Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca"),
)
_ENDING: tuple[Reset, ...] = ("idle", "daily", "both")
_TIMES = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))
_MOMENTS = st.floats(1_000_000_000, 2_200_000_000)
_DAILY_ANYWHERE = st.builds(
    lambda zone, at: SessionPolicy(reset="daily", daily_at=at, timezone=zone),
    st.sampled_from(_ZONES),
    _TIMES,
)


def _at(text: str, zone: str = "Europe/Berlin", *, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def _began(policy: SessionPolicy, now: float) -> float:
    """The cutoff of a policy that has one."""
    found = cutoff(policy, now)
    assert found is not None
    return found


def test_a_conversation_that_never_ends_has_no_cutoff() -> None:
    assert cutoff(SessionPolicy(), 1e9) is None


def test_a_pause_is_counted_from_now() -> None:
    assert cutoff(SessionPolicy(reset="idle", idle_minutes=30), 1e9) == 1e9 - 1800


@pytest.mark.parametrize(
    ("now", "began"),
    [
        ("2026-05-02 02:29:59", "2026-05-01 02:30"),
        ("2026-05-02 02:30:00", "2026-05-02 02:30"),
        ("2026-05-02 23:59:59", "2026-05-02 02:30"),
    ],
)
def test_a_day_begins_at_its_time_of_day(now: str, began: str) -> None:
    assert cutoff(_DAILY, _at(now)) == _at(began)


@pytest.mark.parametrize("now", ["2026-05-02 02:40", "2026-05-02 09:00"])
def test_of_both_the_later_counts(now: str) -> None:
    both = replace(_DAILY, reset="both", idle_minutes=60)
    expected = max(_at(now) - _HOUR, _at("2026-05-02 02:30"))
    assert cutoff(both, _at(now)) == expected


def test_a_time_that_the_clock_leaves_out_comes_once_after_the_jump() -> None:
    jump = _at("2026-03-29 03:00")
    began = {_began(_DAILY, jump + minute * 60) for minute in range(-120, 20 * 60)}
    assert began == {_at("2026-03-28 02:30"), jump + 1800}


def test_an_hour_that_the_clock_passes_twice_begins_one_day() -> None:
    first, second = _at("2026-10-25 02:30"), _at("2026-10-25 02:30", fold=1)
    assert second - first == _HOUR
    began = {_began(_DAILY, first + minute * 60) for minute in range(-60, 20 * 60)}
    assert began == {_at("2026-10-24 02:30"), first}


def test_a_clock_put_back_over_midnight_does_not_call_the_old_day_back() -> None:
    """At one minute past midnight it was one minute past eleven again."""
    there = replace(_DAILY, daily_at="00:00", timezone="America/St_Johns")
    midnight = _at("2010-11-07 00:00", "America/St_Johns")
    assert cutoff(there, midnight + 30) == midnight
    assert cutoff(there, midnight + 1800) == midnight


def test_a_day_that_was_left_out_whole_is_passed_over() -> None:
    """Samoa had no 30 December 2011."""
    there = replace(_DAILY, daily_at="04:00", timezone="Pacific/Apia")
    before = _at("2011-12-29 04:00", "Pacific/Apia")
    assert cutoff(there, _at("2011-12-31 03:00", "Pacific/Apia")) == before


@pytest.fixture
def machine_in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25", "2026-05-02"])
def test_without_a_zone_the_machines_own_counts(machine_in_berlin: None, day: str) -> None:
    for minute in range(0, 24 * 60, 10):
        now = _at(f"{day} 00:00") + minute * 60
        assert cutoff(replace(_DAILY, timezone=None), now) == cutoff(_DAILY, now)


@given(policy=_DAILY_ANYWHERE, now=_MOMENTS)
@example(_DAILY, datetime(2026, 10, 26, 2, 29, tzinfo=ZoneInfo("Europe/Berlin")).timestamp())
def test_the_day_began_within_a_day_and_never_in_the_future(
    policy: SessionPolicy, now: float
) -> None:
    began = _began(policy, now)
    assert now - 25 * _HOUR <= began <= now


@given(policy=_DAILY_ANYWHERE, now=_MOMENTS)
def test_the_day_begins_when_the_clock_shows_its_time(policy: SessionPolicy, now: float) -> None:
    began = datetime.fromtimestamp(_began(policy, now), ZoneInfo(policy.timezone or ""))
    shown = f"{began:%H:%M}"
    # In a gap the clock never shows it; then the same moment a day before or after does.
    was_in_a_gap = datetime.fromtimestamp(began.timestamp() - 2 * _HOUR, began.tzinfo).utcoffset()
    assert shown == policy.daily_at or was_in_a_gap != began.utcoffset()


@given(
    policy=_DAILY_ANYWHERE,
    reset=st.sampled_from(_ENDING),
    minutes=st.integers(1, 525_600),
    now=_MOMENTS,
    later=st.floats(0, 3 * 86_400),
)
def test_a_cutoff_never_goes_back(
    policy: SessionPolicy, reset: Reset, minutes: int, now: float, later: float
) -> None:
    held = replace(policy, reset=reset, idle_minutes=minutes)
    assert _began(held, now) <= _began(held, now + later) <= now + later


def test_a_zone_that_does_not_exist_is_told() -> None:
    for zone in ("Nowhere/Land", "", "../etc/passwd", "Europe", "a\0b"):
        with pytest.raises(ParleyError, match="is not a known time zone"):
            cutoff(replace(_DAILY, timezone=zone), 1e9)


@pytest.mark.parametrize("text", ["/new", " /NEW\n", "Neu anfangen", "STRASSE", "straße"])
def test_a_message_that_is_a_trigger_begins_anew(text: str) -> None:
    assert is_trigger(SessionPolicy(reset_triggers=("/new", " neu anfangen ", "Straße")), text)


@pytest.mark.parametrize("text", ["", "  ", "/new please", "new", "/ne", "/reset"])
def test_any_other_message_does_not(text: str) -> None:
    assert not is_trigger(SessionPolicy(reset_triggers=("/new", "", "  ")), text)


def test_a_surfaces_own_words_stand_above_the_general_ones() -> None:
    settings = SessionSettings.model_validate(
        {
            "reset": "daily",
            "daily_at": "05:00",
            "timezone": "Asia/Tokyo",
            "reset_notice": False,
            "surfaces": {
                "telegram": {
                    "reset": "idle",
                    "idle_minutes": 5,
                    "group_sessions_per_user": False,
                    "reset_triggers": [],
                },
            },
        }
    )
    general = SessionPolicy(
        reset="daily",
        daily_at="05:00",
        timezone="Asia/Tokyo",
        reset_triggers=("/new", "/reset"),
        reset_notice=False,
    )
    assert policy_for(settings, "discord") == general
    assert policy_for(settings, "telegram") == replace(
        general,
        reset="idle",
        idle_minutes=5,
        group_sessions_per_user=False,
        reset_triggers=(),
    )


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("daily_at: 24:00", "`sessions.daily_at` wants a time of day like 04:00, not `24:00`."),
        ("daily_at: 4 Uhr", "`sessions.daily_at` wants a time of day like 04:00, not `4 Uhr`."),
        ("timezone: Mars", "`sessions.timezone` wants a time zone such as Europe/Paris"),
        (
            "surfaces: {telegram: {daily_at: noon}}",
            "`sessions.surfaces.telegram.daily_at` wants a time of day like 04:00, not `noon`.",
        ),
    ],
)
def test_what_the_settings_cannot_mean_is_told_when_they_are_loaded(
    setting: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as told:
        validate(parse_document(f"sessions:\n  {setting}\n", Path("config.yaml")))
    assert sentence in str(told.value)


def test_a_time_of_day_needs_no_quotes() -> None:
    text = "sessions:\n  daily_at: 12:30\n  timezone: Europe/Paris\n"
    settings = validate(parse_document(text, Path("config.yaml")))
    assert settings.sessions.daily_at == "12:30"
