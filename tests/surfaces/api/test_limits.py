"""How many requests a key may make."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parley.surfaces.api.limits import RateLimits


def test_as_many_as_a_minute_allows_may_come_at_once_and_then_one_at_a_time() -> None:
    limits = RateLimits()
    assert [limits.allow("k", 3, 0.0) for _ in range(3)] == [None, None, None]
    assert limits.allow("k", 3, 0.0) == 20.0
    assert limits.allow("k", 3, 5.0) == 15.0
    assert limits.allow("k", 3, 20.0) is None
    assert limits.allow("k", 3, 20.0) == 20.0


def test_one_key_does_not_use_up_what_another_has() -> None:
    limits = RateLimits()
    assert limits.allow("a", 1, 0.0) is None
    assert limits.allow("a", 1, 0.0) is not None
    assert limits.allow("b", 1, 0.0) is None


def test_no_limit_and_none_at_all() -> None:
    limits = RateLimits()
    assert all(limits.allow("k", None, 0.0) is None for _ in range(10_000))
    assert len(limits) == 0
    assert limits.allow("k", 0, 0.0) == 60.0


def test_a_changed_limit_counts_at_once_and_forgives_nothing() -> None:
    limits = RateLimits()
    for _ in range(5):
        limits.allow("k", 5, 0.0)
    assert limits.allow("k", 60, 0.0) is None
    for _ in range(54):
        assert limits.allow("k", 60, 0.0) is None
    assert limits.allow("k", 60, 0.0) is not None
    assert limits.allow("k", 1, 0.0) is not None


def test_a_key_that_rests_is_forgotten() -> None:
    limits = RateLimits()
    for number in range(100):
        limits.allow(f"k{number}", 60, 0.0)
    assert len(limits) == 100
    for moment in range(200):
        limits.allow("one", 60, 10_000.0 + moment)
    assert len(limits) == 1


def test_a_slow_bucket_does_not_hold_up_the_forgetting_of_others() -> None:
    limits = RateLimits()
    limits.allow("slow", 0.001, 0.0)
    for number in range(50):
        limits.allow(f"k{number}", 60, 0.0)
    for moment in range(300):
        limits.allow("one", 60, 100.0 + moment)
    assert len(limits) == 2


def test_there_are_never_more_than_so_many() -> None:
    limits = RateLimits(most=10)
    for number in range(1000):
        limits.allow(f"k{number}", 1, 0.0)
        assert len(limits) <= 10


@given(
    st.lists(st.floats(0, 30), min_size=1, max_size=200),
    st.integers(1, 40),
)
def test_in_no_stretch_of_time_more_pass_than_the_limit_says(
    gaps: list[float], per_minute: int
) -> None:
    limits, now, passed = RateLimits(), 1000.0, list[float]()
    for gap in gaps:
        now += gap
        wait = limits.allow("k", per_minute, now)
        if wait is None:
            passed.append(now)
        else:
            assert 0 < wait <= 60 / per_minute + 0.001
            now += wait
            assert limits.allow("k", per_minute, now) is None
            passed.append(now)
    for first in range(len(passed)):
        stretch = passed[-1] - passed[first]
        assert len(passed) - first <= per_minute + stretch * per_minute / 60 + 1.001


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    limits = RateLimits()
    assert limits.allow("k", 1, 100.0) is None
    assert limits.allow("k", 1, 50.0) is not None
    assert limits.allow("k", 1, 100.0) is not None
    assert limits.allow("k", 1, 160.0) is None
