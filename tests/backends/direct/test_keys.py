"""The names of threads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.backends.direct import ThreadKey, build_thread_key, parse_thread_key
from parley.profiles import PROFILE_NAME

_FIVE = "1:a1:b1:c1:d1:e"
_DEFAULT = "1:a1:b1:c7:default"  # the default profile is not written
# Parts that look like the glue between parts, and any others.
_PART = st.text(alphabet=st.sampled_from("0123456789:ab"), max_size=12) | st.text(max_size=12)
_PROFILE = st.from_regex(PROFILE_NAME, fullmatch=True) | st.sampled_from(["default", "1", "0"])
_PARTS = st.builds(ThreadKey, _PART, _PART, _PART, _PROFILE)


def built(key: ThreadKey) -> str:
    return build_thread_key(key.platform, key.user_id, key.chat_id, profile=key.profile)


def test_a_key_has_each_part_after_its_length() -> None:
    key = build_thread_key("matrix", "@alice:example.org", "C1")
    assert key == "6:matrix18:@alice:example.org2:C1"


def test_lengths_count_characters() -> None:
    assert build_thread_key("matrix", "@Лямбда", "😀") == "6:matrix7:@Лямбда1:😀"


def test_colons_in_a_name_make_no_other_thread_alike() -> None:
    left = build_thread_key("matrix", "@alice:example.org", "C1")
    assert left != build_thread_key("matrix", "@alice", "example.org:C1")


def test_a_named_profile_is_a_part_and_the_default_one_is_not() -> None:
    alice = ("matrix", "@alice:example.org", "C1")
    assert build_thread_key(*alice, profile="coder") == "6:matrix18:@alice:example.org2:C15:coder"
    assert build_thread_key(*alice, profile="default") == build_thread_key(*alice)
    assert parse_thread_key(build_thread_key(*alice)) == (*alice, "default")


@given(_PARTS, _PARTS)
def test_two_conversations_never_share_a_key(left: ThreadKey, right: ThreadKey) -> None:
    assert (built(left) == built(right)) == (left == right)


@given(_PARTS)
def test_a_key_can_be_read_back(parts: ThreadKey) -> None:
    assert parse_thread_key(built(parts)) == parts


@given(st.text(alphabet=st.sampled_from("0123456789:ab²"), max_size=16))
def test_what_is_read_is_the_only_way_to_write_it(text: str) -> None:
    try:
        parts = parse_thread_key(text)
    except ValueError:
        return
    assert built(parts) == text


@pytest.mark.parametrize(
    "text", ["", "default", "1:a", "1:a1:b", "1:a1:b1:cd", "01:a1:b1:c", _FIVE, _DEFAULT]
)
def test_other_texts_are_no_keys(text: str) -> None:
    with pytest.raises(ValueError, match="not a thread key"):
        parse_thread_key(text)
