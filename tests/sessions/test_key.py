"""The names of conversations: byte for byte, readable by position, never shared, read back."""

from __future__ import annotations

import sqlite3
from itertools import product
from typing import NamedTuple
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley.protocol import ParleyError, SessionSource
from parley.sessions.key import (
    SessionName,
    build_session_key,
    names_a_conversation,
    parse_session_key,
)

# Everything a platform could send: any character at all, and those that a key is made of.
_ANYTHING = st.text(st.characters(), min_size=1, max_size=8)
_TRICKY = st.text(":%3A25ab \n\0\x85\u2028\ud83d\ude00😀é", min_size=1, max_size=6)
_LONG = st.builds(lambda text: text * 300, _TRICKY)
_IDS = _ANYTHING | _TRICKY | _LONG | st.sampled_from(["dm", "group", "main", "agent", "t1", "%3A"])
_PROFILES = (
    st.none() | st.from_regex(r"[a-c0-9][a-c0-9-]{0,3}", fullmatch=True) | st.just("default")
)


class Policy(NamedTuple):
    group_sessions_per_user: bool
    thread_sessions_per_user: bool


_POLICIES = [Policy(*flags) for flags in product([True, False], repeat=2)]


def key_of(source: SessionSource, policy: Policy, profile: str | None = None) -> str:
    return build_session_key(source, **policy._asdict(), profile=profile)


def parts_of(source: SessionSource, policy: Policy, profile: str | None) -> SessionName:
    """What tells conversations apart, worked out without any key."""
    speaker = source.user_id_alt or source.user_id or None
    named = (profile or "default", source.platform, source.chat_type)
    thread = source.thread_id or None
    if source.chat_type == "dm":
        return SessionName(*named, source.chat_id or speaker, thread)
    counted = policy.group_sessions_per_user
    if thread is not None:
        counted = counted and policy.thread_sessions_per_user
    return SessionName(*named, source.chat_id, thread, speaker if counted else None)


@st.composite
def sources(draw: st.DrawFn, ids: st.SearchStrategy[str] = _IDS) -> SessionSource:
    """Sources that name a conversation, with ids that are often each other's."""
    pool = draw(st.lists(ids, min_size=1, max_size=3))
    one = st.sampled_from(pool)
    maybe = st.none() | st.just("") | one
    source = SessionSource(
        platform=draw(st.just("telegram") | one),
        chat_id=draw(st.just("") | one),
        chat_type=draw(st.sampled_from(["dm", "group", "channel", *pool])),
        user_id=draw(maybe),
        user_id_alt=draw(maybe),
        thread_id=draw(maybe),
    )
    if names_a_conversation(source):
        return source
    return SessionSource(source.platform, draw(one), source.chat_type, thread_id=source.thread_id)


# Few ids, so that two sources have much in common and differ in where it stands.
_KIN = sources(st.sampled_from(["a", "b", "a:b", "a%3Ab", "dm", "a:", ":", "%"]))


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
        (SessionSource("telegram", "99", user_id="", thread_id=""), "agent:main:telegram:dm:99"),
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
            "agent:main:discord:group:g1:t1:",
        ),
        (
            SessionSource("discord", chat_type="group", thread_id="t1"),
            "agent:main:discord:group:t1",
        ),
        (SessionSource("discord", chat_type="group"), "agent:main:discord:group"),
        (SessionSource("slack", "c1", "channel"), "agent:main:slack:channel:c1"),
        (SessionSource("matrix", "!r:example.org"), "agent:main:matrix:dm:!r%3Aexample.org"),
        (SessionSource("matrix", "50%3A"), "agent:main:matrix:dm:50%253A"),
        (SessionSource("webhook", "a\nb\0c\x85"), "agent:main:webhook:dm:a%0Ab%00c%C2%85"),
        (SessionSource("webhook", "\ud83d"), "agent:main:webhook:dm:%ED%A0%BD"),
        (SessionSource("webhook", "zoë 😀"), "agent:main:webhook:dm:zoë 😀"),
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
    assert neither == "agent:main:discord:group:g1:t1:"


def test_a_thread_is_not_the_participant_of_the_same_name() -> None:
    thread = SessionSource("discord", "g1", "group", user_id="alice", thread_id="x")
    participant = SessionSource("discord", "g1", "group", user_id="x")
    assert build_session_key(thread) != build_session_key(participant)


def test_a_direct_chat_is_one_conversation_whoever_speaks() -> None:
    keys = {build_session_key(SessionSource("telegram", "99", user_id=u)) for u in ("a", "b")}
    assert keys == {"agent:main:telegram:dm:99"}


def test_a_direct_chat_without_an_id_is_the_one_its_user_names() -> None:
    by_user = SessionSource("signal", user_id="jordan")
    assert build_session_key(by_user) == build_session_key(SessionSource("signal", "jordan"))


def test_a_named_profile_takes_the_second_place_only() -> None:
    source = SessionSource("slack", "c1", "channel", user_id="u1")
    ours = build_session_key(source).split(":")
    theirs = build_session_key(source, profile="coder").split(":")
    assert theirs == ["agent", "coder", "slack", "channel", "c1", "u1"]
    assert ours == ["agent", "main", *theirs[2:]]


@pytest.mark.parametrize("profile", ["main", "all", "", " ", "Coder", "a:b", "coder\n", "x" * 33])
def test_a_name_no_profile_can_have_gets_no_key(profile: str) -> None:
    for _ in range(2):
        with pytest.raises(ParleyError):
            build_session_key(SessionSource("telegram", "99"), profile=profile)


@pytest.mark.parametrize("source", [SessionSource("", "99"), SessionSource("telegram", "99", "")])
def test_a_source_without_platform_or_chat_type_gets_no_key(source: SessionSource) -> None:
    assert not names_a_conversation(source)
    with pytest.raises(ParleyError):
        build_session_key(source)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (SessionSource("telegram", "99"), True),
        (SessionSource("telegram", user_id="jordan"), True),
        (SessionSource("signal", user_id_alt="uuid"), True),
        (SessionSource("telegram"), False),
        (SessionSource("telegram", user_id="", thread_id="t1"), False),
        (SessionSource("discord", "g1", "group"), True),
        (SessionSource("discord", "", "group", user_id="alice", thread_id="t1"), False),
    ],
)
def test_a_source_names_a_conversation_by_chat_or_peer(source: SessionSource, named: bool) -> None:
    assert names_a_conversation(source) is named


@given(one=_KIN | sources(), other=_KIN | sources(), profiles=st.tuples(_PROFILES, _PROFILES))
@example(
    one=SessionSource("discord", "g1", "group", thread_id="x"),
    other=SessionSource("discord", "g1", "group", user_id="x"),
    profiles=(None, None),
)
def test_two_conversations_never_share_a_key(
    one: SessionSource, other: SessionSource, profiles: tuple[str | None, str | None]
) -> None:
    named = [
        (parts_of(source, policy, profile), key_of(source, policy, profile))
        for policy in _POLICIES
        for source in (one, other)
        for profile in profiles
    ]
    assert len({parts for parts, _ in named}) == len({key for _, key in named}) == len(set(named))


@given(source=_KIN | sources(), profile=_PROFILES, policy=st.sampled_from(_POLICIES))
def test_a_key_is_read_back_as_the_parts_it_was_made_of(
    source: SessionSource, profile: str | None, policy: Policy
) -> None:
    key = key_of(source, policy, profile)
    name = parse_session_key(key)
    assert name == parts_of(source, policy, profile)
    assert name.key == key


@given(
    ids=st.tuples(*[st.none() | st.just("") | _IDS] * 4),
    chat_type=st.sampled_from(["dm", "group"]),
    policy=st.sampled_from(_POLICIES),
)
def test_the_key_of_a_source_that_names_nobody_is_read_back_too(
    ids: tuple[str | None, str | None, str | None, str | None], chat_type: str, policy: Policy
) -> None:
    chat, user, other_user, thread = ids
    source = SessionSource(
        "telegram", chat or "", chat_type, user_id=user, user_id_alt=other_user, thread_id=thread
    )
    key = key_of(source, policy)
    assert parse_session_key(key).key == key


_PIECES = ["agent", "main", "default", "coder", "all", "dm", "group", "a", "", "%", "%3A", "%3a"]
_PIECES += ["%41", "%zz", "%25", "%ED%A0%80", "%ED%A0", "%C2%85", "%C3%A9", "\n", "\ud800", "é"]
_NEARLY = st.lists(st.sampled_from(_PIECES), max_size=7).map(":".join)
_AFTER = st.lists(st.sampled_from(_PIECES), max_size=5).map(
    lambda pieces: ":".join(["agent", "coder", *pieces])
)


@given(text=_AFTER | _NEARLY | _ANYTHING | _TRICKY)
def test_any_text_is_refused_or_the_very_key_of_what_is_read(text: str) -> None:
    try:
        name = parse_session_key(text)
    except ParleyError:
        return
    source = SessionSource(
        name.platform,
        name.chat_id or "",
        name.chat_type,
        user_id=name.participant,
        thread_id=name.thread_id,
    )
    assert name.key == text
    assert build_session_key(source, thread_sessions_per_user=True, profile=name.profile) == text


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("agent:main:telegram:dm:99", SessionName("default", "telegram", "dm", "99")),
        ("agent:coder:telegram:dm:99:t1", SessionName("coder", "telegram", "dm", "99", "t1")),
        ("agent:main:telegram:dm", SessionName("default", "telegram", "dm")),
        ("agent:main:x:group:g1", SessionName("default", "x", "group", "g1")),
        ("agent:main:x:group:g1:al", SessionName("default", "x", "group", "g1", None, "al")),
        ("agent:main:x:group:g1:t1:", SessionName("default", "x", "group", "g1", "t1")),
        ("agent:main:x:group:g1:t1:al", SessionName("default", "x", "group", "g1", "t1", "al")),
        ("agent:main:x:dm:a%3Ab%25%0A", SessionName("default", "x", "dm", "a:b%\n")),
        ("agent:main:x:dm:%ED%A0%BD", SessionName("default", "x", "dm", "\ud83d")),
    ],
)
def test_a_key_says_this(key: str, name: SessionName) -> None:
    assert parse_session_key(key) == name


@pytest.mark.parametrize(
    "key",
    [
        "",
        "agent",
        "agent:main:telegram",
        "agents:main:telegram:dm:99",
        "Agent:main:telegram:dm:99",
        " agent:main:telegram:dm:99",
        "agent:main:telegram:dm:99\n",
        "agent::telegram:dm:99",
        "agent:default:telegram:dm:99",
        "agent:all:telegram:dm:99",
        "agent:Coder:telegram:dm:99",
        "agent:mai%6E:telegram:dm:99",
        "agent:main::dm:99",
        "agent:main:telegram::99",
        "agent:main:telegram:dm:",
        "agent:main:telegram:dm::t1",
        "agent:main:telegram:dm:99:",
        "agent:main:telegram:dm:99:t1:",
        "agent:main:telegram:dm:99:t1:alice",
        "agent:main:discord:group:",
        "agent:main:discord:group:g1:",
        "agent:main:discord:group:g1::",
        "agent:main:discord:group:g1::alice",
        "agent:main:discord:group::t1:alice",
        "agent:main:discord:group:g1:t1:alice:",
        "agent:main:discord:group:g1:t1:alice:more",
        "agent:main:x:dm:%zz",
        "agent:main:x:dm:%41",
        "agent:main:x:dm:%3a",
        "agent:main:x:dm:%",
        "agent:main:x:dm:%2",
        "agent:main:x:dm:%C3%A9",
        "agent:main:x:dm:%FF",
        "agent:main:x:dm:%ED%A0",
        "agent:main:x:dm:\ud800",
        "agent:main:x:dm:a\0",
        "agent:main:x:d%6D:99",
    ],
)
def test_what_no_source_is_called_is_refused_in_a_sentence_that_can_be_shown(key: str) -> None:
    with pytest.raises(ParleyError) as refused:
        parse_session_key(key)
    sentence = str(refused.value)
    assert "is not a session key" in sentence
    assert sentence.encode().isascii()
    assert sentence.isprintable()


@given(source=sources())
def test_a_key_is_one_line_that_is_stored_as_it_is(source: SessionSource) -> None:
    key = build_session_key(source)
    assert key.splitlines() == [key]
    with sqlite3.connect(":memory:") as database:
        stored, length = database.execute("SELECT ?1, length(?1)", (key,)).fetchone()
    database.close()
    assert (stored, length) == (key, len(key))


_ORDINARY = st.characters(exclude_characters=":%", exclude_categories=["Cs", "Cc", "Zl", "Zp"])


@given(chat=st.text(_ORDINARY, min_size=1))
def test_an_ordinary_id_stays_as_it_is(chat: str) -> None:
    assert build_session_key(SessionSource("x", chat)) == f"agent:main:x:dm:{chat}"


@given(chat=st.text(min_size=1))
def test_a_key_is_ordinary_percent_encoding(chat: str) -> None:
    key = build_session_key(SessionSource("matrix", chat))
    assert unquote(key.split(":")[4]) == chat
