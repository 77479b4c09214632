"""The names of conversations: byte for byte, readable by position, never shared."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.protocol import SessionSource
from parley.sessions.key import build_session_key

_WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
_TRICKY = st.text(":%3A25ab", min_size=1, max_size=6)
_PARTS = _WORDS | _TRICKY


@pytest.mark.parametrize("profile", [None, "default"])
@pytest.mark.parametrize(
    ("source", "key"),
    [
        (SessionSource("telegram", "99"), "agent:main:telegram:dm:99"),
        (SessionSource("telegram", "99", thread_id="t1"), "agent:main:telegram:dm:99:t1"),
        (SessionSource("telegram", user_id="jordan"), "agent:main:telegram:dm:jordan"),
        (
            SessionSource("signal", user_id="jordan", user_id_alt="uuid"),
            "agent:main:signal:dm:uuid",
        ),
        (SessionSource("telegram", thread_id="t1"), "agent:main:telegram:dm:t1"),
        (SessionSource("telegram"), "agent:main:telegram:dm"),
        (
            SessionSource("discord", "g1", "group", user_id="alice"),
            "agent:main:discord:group:g1:alice",
        ),
        (
            SessionSource("discord", "g1", "group", user_id="alice", user_id_alt="a"),
            "agent:main:discord:group:g1:a",
        ),
        (
            SessionSource("discord", "g1", "group", user_id="alice", thread_id="t1"),
            "agent:main:discord:group:g1:t1",
        ),
        (SessionSource("slack", "c1", "channel"), "agent:main:slack:channel:c1"),
        (SessionSource("matrix", "!r:example.org"), "agent:main:matrix:dm:!r%3Aexample.org"),
        (SessionSource("matrix", "50%3A"), "agent:main:matrix:dm:50%253A"),
    ],
)
def test_a_key_is_byte_for_byte_this(source: SessionSource, key: str, profile: str | None) -> None:
    assert build_session_key(source, profile=profile) == key


def test_a_group_may_share_one_conversation() -> None:
    source = SessionSource("discord", "g1", "group", user_id="alice")
    shared = build_session_key(source, group_sessions_per_user=False)
    assert shared == "agent:main:discord:group:g1"


def test_a_thread_may_be_kept_apart_by_person() -> None:
    source = SessionSource("discord", "g1", "group", user_id="alice", thread_id="t1")
    apart = build_session_key(source, thread_sessions_per_user=True)
    assert apart == "agent:main:discord:group:g1:t1:alice"
    neither = build_session_key(
        source, group_sessions_per_user=False, thread_sessions_per_user=True
    )
    assert neither == "agent:main:discord:group:g1:t1"


def test_a_direct_chat_is_one_conversation_whoever_speaks() -> None:
    keys = {build_session_key(SessionSource("telegram", "99", user_id=u)) for u in ("a", "b")}
    assert keys == {"agent:main:telegram:dm:99"}


def test_a_named_profile_takes_the_second_place_only() -> None:
    source = SessionSource("slack", "c1", "channel", user_id="u1")
    ours = build_session_key(source).split(":")
    theirs = build_session_key(source, profile="coder").split(":")
    assert theirs == ["agent", "coder", "slack", "channel", "c1", "u1"]
    assert ours == ["agent", "main", *theirs[2:]]


@given(profile=_PARTS, platform=_PARTS, chat=_PARTS, thread=_PARTS, user=_PARTS)
def test_parsers_read_by_position(
    profile: str, platform: str, chat: str, thread: str, user: str
) -> None:
    source = SessionSource(platform, chat, "group", user_id=user, thread_id=thread)
    key = build_session_key(source, profile=profile, thread_sessions_per_user=True)
    namespace = "main" if profile == "default" else profile
    expected = ["agent", namespace, platform, "group", chat, thread, user]
    assert [_decoded(part) for part in key.split(":")] == expected


@given(parts=st.lists(st.tuples(_PARTS, _PARTS, _PARTS), min_size=2, max_size=2, unique=True))
def test_two_sources_never_share_a_key(parts: list[tuple[str, str, str]]) -> None:
    keys = {
        build_session_key(SessionSource(platform, chat, "group", user_id=user))
        for platform, chat, user in parts
    }
    assert len(keys) == 2


@given(profiles=st.lists(_PARTS, min_size=2, max_size=2, unique=True), chat=_PARTS)
def test_two_profiles_never_share_a_key(profiles: list[str], chat: str) -> None:
    if set(profiles) == {"main", "default"}:
        return
    source = SessionSource("telegram", chat)
    assert len({build_session_key(source, profile=name) for name in profiles}) == 2


@given(chat=st.text(st.characters(exclude_characters=":%", exclude_categories=["Cs"]), min_size=1))
def test_an_id_without_colon_and_percent_stays_as_it_is(chat: str) -> None:
    assert build_session_key(SessionSource("x", chat)) == f"agent:main:x:dm:{chat}"


def _decoded(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")


def test_a_key_is_ordinary_percent_encoding() -> None:
    key = build_session_key(SessionSource("matrix", "!a%b:c"))
    assert unquote(key.split(":")[4]) == "!a%b:c"
