"""The names of threads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.backends.direct import build_thread_key, parse_thread_key

# Parts that look like the glue between parts, and any others.
_PART = st.text(alphabet=st.sampled_from("0123456789:ab"), max_size=12) | st.text(max_size=12)
_PARTS = st.tuples(_PART, _PART, _PART)


def test_a_key_has_each_part_after_its_length() -> None:
    key = build_thread_key("matrix", "@alice:example.org", "C1")
    assert key == "6:matrix18:@alice:example.org2:C1"


def test_lengths_count_characters() -> None:
    assert build_thread_key("matrix", "@Лямбда", "😀") == "6:matrix7:@Лямбда1:😀"


def test_colons_in_a_name_make_no_other_thread_alike() -> None:
    left = build_thread_key("matrix", "@alice:example.org", "C1")
    assert left != build_thread_key("matrix", "@alice", "example.org:C1")


@given(_PARTS, _PARTS)
def test_two_conversations_never_share_a_key(
    left: tuple[str, str, str], right: tuple[str, str, str]
) -> None:
    assert (build_thread_key(*left) == build_thread_key(*right)) == (left == right)


@given(_PARTS)
def test_a_key_can_be_read_back(parts: tuple[str, str, str]) -> None:
    assert parse_thread_key(build_thread_key(*parts)) == parts


@given(st.text(alphabet=st.sampled_from("0123456789:ab²"), max_size=16))
def test_what_is_read_is_the_only_way_to_write_it(text: str) -> None:
    try:
        parts = parse_thread_key(text)
    except ValueError:
        return
    assert build_thread_key(*parts) == text


@pytest.mark.parametrize("text", ["", "default", "1:a", "1:a1:b", "1:a1:b1:cd", "01:a1:b1:c"])
def test_other_texts_are_no_keys(text: str) -> None:
    with pytest.raises(ValueError, match="not a thread key"):
        parse_thread_key(text)
