"""Secrets are locked so that another implementation opens them, and the other way about."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.surfaces.matrix.recovery_key import write_recovery_key
from parley.surfaces.matrix.secret_cipher import StorageKey, lock, new_key, open_key, unlock
from parley.surfaces.matrix.signing import to_base64

_NAME = "m.cross_signing.master"
_keys = st.binary(min_size=32, max_size=32)


@given(_keys, st.text(max_size=40))
def test_a_secret_comes_back_by_its_key_and_its_name_alone(raw: bytes, secret: str) -> None:
    key, description = new_key(raw)
    assert open_key(key.id, description, write_recovery_key(raw)) == key
    held = lock(key, _NAME, secret)
    assert unlock(key, _NAME, held) == secret
    assert unlock(key, "m.cross_signing.self_signing", held) is None
    assert unlock(StorageKey("another", raw), _NAME, held) is None
    other = bytes([raw[0] ^ 1]) + raw[1:]
    assert unlock(StorageKey(key.id, other), _NAME, held) is None
    assert open_key(key.id, description, write_recovery_key(other)) is None
    assert repr(raw) not in repr(key)


@pytest.mark.parametrize("part", ["iv", "ciphertext", "mac"])
@pytest.mark.parametrize("put", ["", "AAAA", "%", None, 7], ids=str)
def test_a_secret_that_was_tampered_with_is_none(part: str, put: object) -> None:
    key, _ = new_key(bytes(32))
    held: dict[str, Any] = copy.deepcopy(lock(key, _NAME, "a secret"))
    held["encrypted"][key.id][part] = put
    assert unlock(key, _NAME, held) is None


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"algorithm": "m.secret_storage.v1.curve25519-aes-sha2"},
        {"algorithm": "m.secret_storage.v1.aes-hmac-sha2", "iv": 1, "mac": 2},
        {
            "algorithm": "m.secret_storage.v1.aes-hmac-sha2",
            "iv": "AAAAAAAAAAAAAAAAAAAAAA",
            "mac": "AAAA",
            "passphrase": {"algorithm": "m.pbkdf2", "salt": "s", "iterations": 10**12},
        },
    ],
    ids=["empty", "unknown", "no-text", "endless"],
)
def test_a_key_that_is_described_oddly_is_not_opened(description: dict[str, Any]) -> None:
    assert open_key("id", description, write_recovery_key(bytes(32))) is None


def test_another_implementation_opens_what_we_lock() -> None:
    ssss = pytest.importorskip("mautrix.crypto.ssss")
    key, description = new_key(bytes(range(32)))
    metadata = ssss.KeyMetadata.deserialize(description)
    theirs = metadata.verify_recovery_key(key.id, write_recovery_key(key.key))
    held = lock(key, _NAME, to_base64(b"a seed of thirty-two bytes, so!!"))
    content = ssss.EncryptedAccountDataEventContent.deserialize(held)
    assert content.decrypt(_NAME, theirs) == b"a seed of thirty-two bytes, so!!"


def test_we_open_what_another_implementation_locks_with_a_passphrase() -> None:
    ssss = pytest.importorskip("mautrix.crypto.ssss")
    passphrase = "vier Wörter und ein ☂"
    theirs = ssss.Key.generate(passphrase)
    description = theirs.metadata.serialize()
    key = open_key(theirs.id, description, passphrase)
    assert key == StorageKey(theirs.id, theirs.key)
    assert open_key(theirs.id, description, theirs.recovery_key) == key
    assert open_key(theirs.id, description, passphrase + "!") is None
    held = {"encrypted": {theirs.id: theirs.encrypt(_NAME, b"seed").serialize()}}
    assert unlock(key, _NAME, held) == to_base64(b"seed")
