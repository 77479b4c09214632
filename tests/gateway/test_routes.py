"""Which profile a message on a shared account goes to: the most specific route, else the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config.settings import RouteSettings
from parley.gateway.routes import RouteTable
from parley.protocol import ParleyError, SessionSource

SERVED = ["default", "coder", "writer", "cook"]


def route(profile: str, **conditions: Any) -> RouteSettings:
    return RouteSettings(profile=profile, **conditions)


def table(*routes: RouteSettings) -> RouteTable:
    return RouteTable(routes, served=SERVED)


FULL = SessionSource(
    "discord",
    "c1",
    "group",
    user_id="alice",
    user_id_alt="a-1",
    thread_id="t1",
    account="house",
    guild_id="g1",
)


def test_without_routes_nothing_matches() -> None:
    assert table().match(FULL) is None


@pytest.mark.parametrize(
    ("condition", "value", "other"),
    [
        ("platform", "discord", "telegram"),
        ("account", "house", "shop"),
        ("guild", "g1", "g2"),
        ("chat", "c1", "c2"),
        ("thread", "t1", "t2"),
        ("user", "alice", "bob"),
        ("user", "a-1", "b-1"),
    ],
)
def test_a_condition_matches_what_the_source_has_and_nothing_else(
    condition: str, value: str, other: str
) -> None:
    assert table(route("coder", **{condition: value})).match(FULL) == "coder"
    assert table(route("coder", **{condition: other})).match(FULL) is None
    assert table(route("coder", **{condition: value})).match(SessionSource("telegram")) is None


def test_all_conditions_of_a_route_must_hold() -> None:
    routes = table(route("coder", platform="discord", chat="c2"))
    assert routes.match(FULL) is None


def test_a_number_in_the_settings_is_an_id() -> None:
    routes = table(route("coder", chat=-100123))
    assert routes.match(SessionSource("telegram", "-100123", "group")) == "coder"


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ({"user": "alice"}, {"thread": "t1", "chat": "c1", "guild": "g1", "platform": "discord"}),
        ({"thread": "t1"}, {"chat": "c1", "guild": "g1", "account": "house"}),
        ({"chat": "c1"}, {"guild": "g1", "account": "house", "platform": "discord"}),
        ({"guild": "g1"}, {"account": "house", "platform": "discord"}),
        ({"account": "house"}, {"platform": "discord"}),
        ({"chat": "c1", "platform": "discord"}, {"chat": "c1"}),
        ({"chat": "c1", "guild": "g1"}, {"chat": "c1", "account": "house", "platform": "discord"}),
    ],
)
def test_the_narrowest_condition_decides(narrow: dict[str, str], wide: dict[str, str]) -> None:
    assert table(route("cook", **wide), route("coder", **narrow)).match(FULL) == "coder"
    assert table(route("coder", **narrow), route("cook", **wide)).match(FULL) == "coder"


def test_a_narrow_route_that_does_not_match_leaves_it_to_a_wide_one() -> None:
    routes = table(route("coder", user="bob"), route("cook", platform="discord"))
    assert routes.match(FULL) == "cook"


def test_among_equals_the_first_wins() -> None:
    assert table(route("cook", chat="c1"), route("coder", chat="c1")).match(FULL) == "cook"


def test_both_ids_of_a_user_count_alike() -> None:
    by_id, by_other = route("coder", user="alice"), route("cook", user="a-1")
    assert table(by_id, by_other).match(FULL) == "coder"
    assert table(by_other, by_id).match(FULL) == "cook"


def test_a_route_without_a_condition_is_refused_by_its_number() -> None:
    with pytest.raises(ParleyError, match=r"^Route 2 in `gateway\.routes` has no condition"):
        table(route("coder", chat="c1"), route("cook"))


def test_a_route_to_a_profile_that_is_not_served_is_refused_with_what_to_do() -> None:
    with pytest.raises(ParleyError) as refused:
        table(route("coder", chat="c1"), route("codr", chat="c2"))
    assert str(refused.value) == (
        "Route 2 in `gateway.routes` goes to the profile `codr`, which is not served: make it "
        "(`parley profile create`), see that `gateway.profiles` is empty or names it, and that "
        "`gateway.multiplex_profiles` is on; or remove the route."
    )


def test_a_platform_in_capitals_is_refused_with_its_spelling() -> None:
    with pytest.raises(ParleyError, match=r"^Route 1 .*`Telegram`.* small: `telegram`\.$"):
        table(route("coder", platform="Telegram"))


_ID = st.sampled_from("ab")
# Mostly nothing, so that routes often have the same conditions.
_MAYBE = st.sampled_from([None, None, None, None, "a", "b"])
_ROUTES = st.lists(
    st.builds(
        RouteSettings,
        profile=st.sampled_from(SERVED),
        platform=_MAYBE,
        account=_MAYBE,
        guild=_MAYBE,
        chat=_MAYBE,
        thread=_MAYBE,
        user=_MAYBE,
    ).filter(lambda made: made.model_dump(exclude={"profile"}, exclude_none=True)),
    max_size=20,
)
_NOTHING_OR = st.none() | st.just("") | _ID
_SOURCES = st.builds(
    SessionSource,
    platform=_ID,
    chat_id=st.just("") | _ID,
    user_id=_NOTHING_OR,
    user_id_alt=_NOTHING_OR,
    thread_id=_NOTHING_OR,
    account=_NOTHING_OR,
    guild_id=_NOTHING_OR,
)


@given(routes=_ROUTES, source=_SOURCES)
def test_the_table_answers_as_a_walk_through_all_routes_would(
    routes: list[RouteSettings], source: SessionSource
) -> None:
    assert table(*routes).match(source) == _by_walking(routes, source)


def _by_walking(routes: Sequence[RouteSettings], source: SessionSource) -> str | None:
    best: tuple[tuple[bool, ...], RouteSettings] | None = None
    for made in routes:
        conditions: list[tuple[str | None, set[str | None]]] = [
            (made.user, {source.user_id, source.user_id_alt}),
            (made.thread, {source.thread_id}),
            (made.chat, {source.chat_id}),
            (made.guild, {source.guild_id}),
            (made.account, {source.account}),
            (made.platform, {source.platform}),
        ]
        if any(asked is not None and asked not in there for asked, there in conditions):
            continue
        rank = tuple(asked is not None for asked, _ in conditions)
        if best is None or rank > best[0]:
            best = (rank, made)
    return None if best is None else best[1].profile
