"""Which conversation a message belongs to, with one profile served and with many."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config.settings import GatewayConfig, SessionSettings
from parley.protocol import ParleyError, SessionSource
from parley.sessions.key import build_session_key, parse_session_key
from parley.sessions.store import SessionStore

OFF = GatewayConfig()
ON = GatewayConfig(multiplex_profiles=True)

DIRECT = SessionSource("telegram", "99")
GROUP = SessionSource("discord", "g1", "group", user_id="alice")
THREAD = replace(GROUP, thread_id="t1")

_NAMES = st.from_regex(r"[a-c0-9][a-c0-9-]{0,3}", fullmatch=True) | st.just("default")
_SOURCES = st.builds(
    SessionSource,
    platform=st.sampled_from(["telegram", "discord"]),
    chat_id=st.text(":%ab", max_size=3),
    chat_type=st.sampled_from(["dm", "group", "channel"]),
    user_id=st.none() | st.text(":%ab", max_size=3),
    thread_id=st.none() | st.text(":%ab", max_size=3),
    profile=st.none() | _NAMES,
)


@pytest.mark.parametrize("active", ["default", "coder"])
@pytest.mark.parametrize("named", [None, "default", "writer"])
def test_without_the_flag_nobodys_name_stands_in_a_key(active: str, named: str | None) -> None:
    store = SessionStore(OFF, active=active)
    source = replace(DIRECT, profile=named)
    assert store.profile_for_key() is None
    assert store.profile_for_key(source) is None
    assert store.namespace == "main"
    assert store.key_for(source) == "agent:main:telegram:dm:99"


def test_with_the_flag_it_is_the_sources_profile_else_the_active_one() -> None:
    store = SessionStore(ON, active="coder")
    assert store.profile_for_key() == "coder"
    assert store.profile_for_key(DIRECT) == "coder"
    assert store.profile_for_key(replace(DIRECT, profile="")) == "coder"
    assert store.profile_for_key(replace(DIRECT, profile="writer")) == "writer"
    assert store.namespace == "coder"
    assert store.key_for(DIRECT) == "agent:coder:telegram:dm:99"
    assert store.key_for(replace(DIRECT, profile="writer")) == "agent:writer:telegram:dm:99"


@pytest.mark.parametrize("named", [None, "default"])
def test_with_the_flag_the_default_profile_stays_main(named: str | None) -> None:
    store = SessionStore(ON)
    assert store.profile_for_key() == "default"
    assert store.namespace == "main"
    assert store.key_for(replace(DIRECT, profile=named)) == "agent:main:telegram:dm:99"
    beside = SessionStore(ON, active="coder")
    assert beside.key_for(replace(DIRECT, profile="default")) == "agent:main:telegram:dm:99"


@given(_SOURCES, _NAMES)
def test_the_flag_changes_the_second_part_of_a_key_and_nothing_else(
    source: SessionSource, active: str
) -> None:
    off, on = SessionStore(OFF, active=active), SessionStore(ON, active=active)
    before, during = off.key_for(source).split(":"), on.key_for(source).split(":")
    assert off.key_for(source) == build_session_key(source)
    assert (before[0], before[2:]) == (during[0], during[2:])
    name = source.profile or active
    assert (before[1], during[1]) == ("main", "main" if name == "default" else name)
    assert parse_session_key(on.key_for(source)).profile == name


@given(_SOURCES, st.sets(_NAMES, min_size=2, max_size=4))
def test_no_two_profiles_share_a_key(source: SessionSource, names: set[str]) -> None:
    keys = {SessionStore(ON, active=name).key_for(replace(source, profile=None)) for name in names}
    assert len(keys) == len(names)


@given(_SOURCES, _NAMES)
def test_the_namespace_is_the_one_that_the_keys_have(source: SessionSource, active: str) -> None:
    for config in (OFF, ON):
        store = SessionStore(config, active=active)
        assert store.key_for(replace(source, profile=active)).split(":")[1] == store.namespace


def test_a_name_that_cannot_be_a_profiles_makes_no_key() -> None:
    with pytest.raises(ParleyError):
        SessionStore(ON).key_for(replace(DIRECT, profile="main"))


# ── the policy of each surface ──


def test_in_a_group_everyone_has_a_conversation_and_a_thread_is_one_for_all() -> None:
    store = SessionStore(OFF)
    assert store.key_for(GROUP) == "agent:main:discord:group:g1:alice"
    assert store.key_for(THREAD) == "agent:main:discord:group:g1:t1:"


def test_a_surface_may_have_it_otherwise() -> None:
    settings = SessionSettings.model_validate(
        {
            "surfaces": {
                "discord": {"group_sessions_per_user": False},
                "slack": {"thread_sessions_per_user": True},
            }
        }
    )
    store = SessionStore(ON, settings, active="coder")
    assert store.key_for(GROUP) == "agent:coder:discord:group:g1"
    assert store.key_for(replace(GROUP, platform="slack")) == "agent:coder:slack:group:g1:alice"
    threads = {
        platform: store.key_for(replace(THREAD, platform=platform))
        for platform in ("discord", "slack", "telegram")
    }
    assert threads == {
        "discord": "agent:coder:discord:group:g1:t1:",
        "slack": "agent:coder:slack:group:g1:t1:alice",
        "telegram": "agent:coder:telegram:group:g1:t1:",
    }
    assert store.policy("discord") is store.policy("discord")
    assert store.policy("discord") != store.policy("slack")
