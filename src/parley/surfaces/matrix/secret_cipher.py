"""How secrets are locked in an account's secret storage: `v1.aes-hmac-sha2`."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from parley.surfaces.matrix.recovery_key import read_recovery_key
from parley.surfaces.matrix.signing import from_base64, to_base64

__all__ = ["StorageKey", "lock", "new_key", "open_key", "unlock"]

_ALGORITHM: Final = "m.secret_storage.v1.aes-hmac-sha2"
_BLANK: Final = b"\0" * 32
_MOST_ITERATIONS: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class StorageKey:
    """A key of the storage, by the id under which the account describes it."""

    id: str
    key: bytes = field(repr=False)


def new_key(key: bytes) -> tuple[StorageKey, dict[str, Any]]:
    """A key under a new id, and its description for the account."""
    made = StorageKey(secrets.token_hex(16), key)
    iv = _new_iv()
    _, mac = _encrypt(made.key, "", _BLANK, iv)
    return made, {"algorithm": _ALGORITHM, "iv": to_base64(iv), "mac": to_base64(mac)}


def open_key(key_id: str, description: Mapping[str, Any], typed: str) -> StorageKey | None:
    """The key that a recovery key or a passphrase opens, if it is the one described. Slow."""
    if description.get("algorithm") != _ALGORITHM:
        return None
    for key in (read_recovery_key(typed), _from_passphrase(description.get("passphrase"), typed)):
        if key is not None and _fits(key, description):
            return StorageKey(key_id, key)
    return None


def lock(key: StorageKey, name: str, secret: str) -> dict[str, Any]:
    """The account data that holds a secret."""
    iv = _new_iv()
    ciphertext, mac = _encrypt(key.key, name, secret.encode(), iv)
    locked = {"iv": to_base64(iv), "ciphertext": to_base64(ciphertext), "mac": to_base64(mac)}
    return {"encrypted": {key.id: locked}}


def unlock(key: StorageKey, name: str, held: Mapping[str, Any]) -> str | None:
    """The secret; None when it is not locked by this key, or was tampered with."""
    try:
        locked = held["encrypted"][key.id]
        iv, ciphertext = from_base64(locked["iv"]), from_base64(locked["ciphertext"])
        aes_key, mac_key = _derive(key.key, name)
        mac = hmac.digest(mac_key, ciphertext, hashlib.sha256)
        if not hmac.compare_digest(mac, from_base64(locked["mac"])):
            return None
        return _stream(aes_key, iv, ciphertext).decode()
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _fits(key: bytes, description: Mapping[str, Any]) -> bool:
    """A key that was described without a mac is taken at its word: the secrets have their own."""
    try:
        iv, mac = description.get("iv"), description.get("mac")
        if iv is None or mac is None:
            return True
        return hmac.compare_digest(_encrypt(key, "", _BLANK, from_base64(iv))[1], from_base64(mac))
    except (TypeError, AttributeError, ValueError):
        return False


def _from_passphrase(how: object, passphrase: str) -> bytes | None:
    if not isinstance(how, Mapping) or how.get("algorithm") != "m.pbkdf2":
        return None
    iterations, salt, bits = how.get("iterations"), how.get("salt"), how.get("bits", 256)
    if not isinstance(salt, str) or not isinstance(iterations, int) or bits != 256:
        return None
    if not 1 <= iterations <= _MOST_ITERATIONS:
        return None
    return hashlib.pbkdf2_hmac("sha512", passphrase.encode(), salt.encode(), iterations, 32)


def _new_iv() -> bytes:
    """Bit 63 is left out, for the counters of some libraries are 64 bits wide."""
    iv = bytearray(secrets.token_bytes(16))
    iv[8] &= 0x7F
    return bytes(iv)


def _encrypt(key: bytes, name: str, plain: bytes, iv: bytes) -> tuple[bytes, bytes]:
    aes_key, mac_key = _derive(key, name)
    ciphertext = _stream(aes_key, iv, plain)
    return ciphertext, hmac.digest(mac_key, ciphertext, hashlib.sha256)


def _stream(key: bytes, iv: bytes, data: bytes) -> bytes:
    from Crypto.Cipher import AES

    return AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=iv).encrypt(data)


def _derive(key: bytes, name: str) -> tuple[bytes, bytes]:
    """Two keys of 32 bytes by HKDF."""
    pseudo_random = hmac.digest(_BLANK, key, hashlib.sha256)
    first = hmac.digest(pseudo_random, name.encode() + b"\x01", hashlib.sha256)
    second = hmac.digest(pseudo_random, first + name.encode() + b"\x02", hashlib.sha256)
    return first, second
