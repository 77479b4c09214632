"""Ids we make, and ids programs choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.surfaces.api.wire import BadRequest
from parley.surfaces.api.wire.ids import check_idempotency_key, check_session_id, new_id


def test_a_new_id_has_its_prefix_and_128_bits_and_no_twin() -> None:
    ids = {new_id("resp") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(each.startswith("resp_") and len(each) == len("resp_") + 32 for each in ids)


@pytest.mark.parametrize("text", ["a", "x" * 256, "a b", "agent:main:1", "v1.2", "~", "%2e%2e"])
def test_a_plain_session_id_is_taken_as_it_is(text: str) -> None:
    assert check_session_id(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "x" * 257, " a", "a ", "a/b", "a\\b", "..", "a..b", ".", "a\nb", "a\x00", "é", "a\x7f"],
)
def test_a_session_id_that_could_be_a_path_or_a_trick_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check_session_id(text, param="X-Parley-Session-Id")
    assert refused.value.param == "X-Parley-Session-Id"
    assert "X-Parley-Session-Id" in refused.value.message


@given(st.text())
def test_any_text_is_a_session_id_or_is_refused(text: str) -> None:
    try:
        taken = check_session_id(text)
    except BadRequest:
        return
    assert taken == text
    assert text.isascii()
    assert not set(text) & set("/\\\r\n\0")
    assert ".." not in text


@pytest.mark.parametrize("text", ["a", "x" * 255, "8e03978e-40d5-43e8-bc93-6894a57f9324", "../x"])
def test_a_plain_idempotency_key_is_taken(text: str) -> None:
    assert check_idempotency_key(text) == text


@pytest.mark.parametrize("text", ["", "x" * 256, "a\r\nb", "ü", " a"])
def test_another_idempotency_key_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check_idempotency_key(text)
    assert refused.value.param == "Idempotency-Key"
