"""A recovery key as people write it down: base58 in groups of four. Pure."""

from __future__ import annotations

from functools import reduce
from operator import xor
from typing import Final

__all__ = ["read_recovery_key", "write_recovery_key"]

_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_HEAD: Final = b"\x8b\x01"
_LENGTH: Final = 32


def write_recovery_key(key: bytes) -> str:
    """What is shown of a key of 32 bytes; its last byte tells a slip of the pen."""
    marked = _HEAD + key
    text = _in_base58(marked + bytes([reduce(xor, marked)]))
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def read_recovery_key(text: str) -> bytes | None:
    """The key, however its groups are spaced; None when this is no recovery key."""
    bare = "".join(text.split())
    if not bare or len(bare) > 2 * _LENGTH or any(letter not in _ALPHABET for letter in bare):
        return None
    number = reduce(lambda sum_, letter: sum_ * 58 + _ALPHABET.index(letter), bare, 0)
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    if len(raw) != len(_HEAD) + _LENGTH + 1 or not raw.startswith(_HEAD) or reduce(xor, raw):
        return None
    return raw[len(_HEAD) : -1]


def _in_base58(raw: bytes) -> str:
    number, letters = int.from_bytes(raw, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        letters = _ALPHABET[digit] + letters
    return letters
