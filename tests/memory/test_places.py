"""What is said is remembered where it was said, and used nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.memory.places import NOWHERE, places_of
from parley.protocol import Request, SessionSource
from parley.sessions.key import build_session_key
from parley.storage.memory import PROFILE


def _places(source: SessionSource, *, memory_key: str | None = None, groups: bool = True) -> object:
    request = Request("r", (), memory_key=memory_key) if source.platform == "api" else None
    return places_of(build_session_key(source), source, request=request, groups=groups)


def test_what_a_person_says_to_the_agent_alone_is_theirs_in_all_their_direct_chats() -> None:
    one = SessionSource("telegram", chat_id="99", user_id="99")
    other = SessionSource("telegram", chat_id="99", user_id="99", thread_id="t1")
    assert _places(one) == _places(other)
    found = places_of(build_session_key(one), one)
    assert found.write == "person:telegram:99"
    assert found.read == (PROFILE, "person:telegram:99")
    assert found.is_private


def test_what_is_said_in_a_group_stays_in_it_whoever_says_it() -> None:
    alice = SessionSource("discord", chat_id="g1", chat_type="group", user_id="alice")
    bob = SessionSource("discord", chat_id="g1", chat_type="group", user_id="bob")
    elsewhere = SessionSource("discord", chat_id="g2", chat_type="group", user_id="alice")
    found = places_of(build_session_key(alice), alice)
    assert found == places_of(build_session_key(bob), bob)
    assert found.write == "chat:discord:group:g1"
    assert not found.is_private
    assert places_of(build_session_key(elsewhere), elsewhere).write != found.write
    assert "alice" not in "".join(found.read)


def test_a_thread_has_a_memory_of_its_own() -> None:
    room = SessionSource("slack", chat_id="c", chat_type="channel", user_id="u")
    thread = SessionSource("slack", chat_id="c", chat_type="channel", user_id="u", thread_id="t")
    ours, theirs = (places_of(build_session_key(each), each) for each in (room, thread))
    assert ours.write != theirs.write


def test_where_groups_are_left_out_only_the_profile_is_known_there() -> None:
    source = SessionSource("discord", chat_id="g1", chat_type="group", user_id="alice")
    found = places_of(build_session_key(source), source, groups=False)
    assert found.write == "" and found.read == (PROFILE,)


def test_a_program_is_remembered_under_the_key_it_gives_and_else_not_at_all() -> None:
    source = SessionSource("api", chat_id="key/s1", user_id="key")
    assert _places(source) == NOWHERE
    assert _places(source, memory_key="ann") != _places(source, memory_key="bob")
    other = SessionSource("api", chat_id="other/s1", user_id="other")
    assert _places(source, memory_key="ann") != _places(other, memory_key="ann")


def test_each_thread_of_a_direct_agent_is_apart_though_one_key_speaks_for_all() -> None:
    one = SessionSource("direct", chat_id="key/6:matrix1:a2:C1", user_id="key")
    two = SessionSource("direct", chat_id="key/6:matrix1:b2:C1", user_id="key")
    assert _places(one) != _places(two)


def test_a_delegated_task_remembers_nothing() -> None:
    source = SessionSource("task", chat_id="t")
    assert _places(source) == NOWHERE


_ids = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@given(_ids, _ids, _ids, _ids)
def test_two_chats_never_share_a_place(chat: str, other: str, thread: str, user: str) -> None:
    sources = [
        SessionSource("m", chat_id=chat, chat_type="group", user_id=user),
        SessionSource("m", chat_id=chat, chat_type="group", user_id=user, thread_id=thread),
        SessionSource("m", chat_id=other, chat_type="group", user_id=user),
    ]
    places = [places_of(build_session_key(each), each).write for each in sources]
    assert places[0] != places[1]
    assert (places[0] == places[2]) == (chat == other)


@pytest.mark.parametrize("groups", [True, False])
def test_nobody_reads_where_they_do_not_write_but_the_profile(groups: bool) -> None:
    source = SessionSource("discord", chat_id="g1", chat_type="group", user_id="alice")
    found = places_of(build_session_key(source), source, groups=groups)
    assert set(found.read) <= {PROFILE, found.write}
