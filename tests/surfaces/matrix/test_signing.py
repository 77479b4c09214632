"""Signatures and recovery keys, by the specification's own examples and other implementations."""

from __future__ import annotations

from typing import Any

import pytest
from canonicaljson import encode_canonical_json
from hypothesis import given
from hypothesis import strategies as st

from parley.surfaces.matrix.recovery_key import read_recovery_key, write_recovery_key
from parley.surfaces.matrix.signing import (
    canonical,
    from_base64,
    is_signed,
    public_key,
    sign,
    to_base64,
)

_SEED = from_base64("YJDBA9Xnr2sVqXD9Vj7XVUnmFZcZrlw8Md7kMW+3XA1")

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(_texts, _values, max_size=4)


@pytest.mark.parametrize(
    ("value", "signature"),
    [
        (
            {},
            "K8280/U9SSy9IVtjBuVeLr+HpOB4BQFWbg+UZaADMtTdGYI7Geitb76LTrr5QV/7Xg4ahLwYGYZzuHGZKM5ZAQ",
        ),
        (
            {"one": 1, "two": "Two"},
            "KqmLSbO39/Bzb0QIYE82zqLwsA+PDzYIpIRA2sRQ4sL53+sN6/fpNSoqE7BP7vBZhG6kYdD13EIMJpvhJI+6Bw",
        ),
    ],
    ids=["empty", "two"],
)
def test_signatures_are_those_of_the_specification(value: dict[str, Any], signature: str) -> None:
    assert sign(value, _SEED) == signature


@given(_objects)
def test_canonical_json_is_as_the_homeserver_writes_it(value: dict[str, Any]) -> None:
    assert canonical(value) == encode_canonical_json(value)


@given(st.binary(min_size=32, max_size=32), _objects, _texts)
def test_a_signature_holds_for_what_was_signed_and_for_nothing_else(
    seed: bytes, value: dict[str, Any], other: str
) -> None:
    value.pop("signatures", None)
    value.pop("unsigned", None)
    key = public_key(seed)
    signed = {
        **value,
        "unsigned": {"age": 1},
        "signatures": {"@a:b": {f"ed25519:{key}": sign(value, seed)}},
    }
    assert is_signed(signed, "@a:b", key)
    assert not is_signed(signed, "@other:b", key)
    assert not is_signed({**signed, "added " + other: 1}, "@a:b", key)
    assert not is_signed(signed, "@a:b", public_key(bytes(32)) if any(seed) else key[:-1])


@pytest.mark.parametrize(
    "signatures",
    [None, 7, {}, {"@a:b": None}, {"@a:b": {"ed25519:k": "%%%"}}, {"@a:b": {"ed25519:k": 1}}],
    ids=["none", "number", "empty", "null", "garbage", "no-text"],
)
def test_what_is_no_signature_is_none(signatures: object) -> None:
    assert not is_signed({"signatures": signatures}, "@a:b", "k")


@given(st.binary(max_size=70))
def test_base64_is_read_with_and_without_padding(data: bytes) -> None:
    text = to_base64(data)
    assert "=" not in text
    assert from_base64(text) == from_base64(text + "=" * (-len(text) % 4)) == data


@given(st.binary(min_size=32, max_size=32))
def test_a_recovery_key_is_twelve_groups_that_lead_back(key: bytes) -> None:
    text = write_recovery_key(key)
    groups = text.split(" ")
    assert [len(group) for group in groups] == [4] * 12
    assert text.startswith("Es")
    assert read_recovery_key(text) == read_recovery_key(f" {''.join(groups)}\n") == key


@given(st.text(max_size=70))
def test_what_is_no_recovery_key_is_refused(text: str) -> None:
    assert read_recovery_key(text) is None


def test_a_slip_in_a_recovery_key_is_seen() -> None:
    text = write_recovery_key(bytes(range(32)))
    slips = [text[:-1] + ("A" if text[-1] != "A" else "B"), text[5:] + " " + text[:4], text[:-2]]
    assert [read_recovery_key(slip) for slip in slips] == [None] * 3


@given(st.binary(min_size=32, max_size=32))
def test_another_implementation_writes_the_same_recovery_key(key: bytes) -> None:
    util = pytest.importorskip("mautrix.crypto.ssss.util")
    assert write_recovery_key(key) == util.encode_base58_recovery_key(key)
