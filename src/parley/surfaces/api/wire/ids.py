"""Ids: those we make, and those a program may choose."""

from __future__ import annotations

import secrets

from parley.surfaces.api.wire.errors import BadRequest

__all__ = ["check_idempotency_key", "check_session_id", "new_id"]

_ID_BYTES = 16
_LONGEST_SESSION_ID = 256
_LONGEST_IDEMPOTENCY_KEY = 255


def new_id(prefix: str) -> str:
    """An id nobody can guess, as `resp_…`."""
    return f"{prefix}_{_chance.hex()}"


class _Chance:
    """Bytes of the system's own randomness, fetched for many ids at once. Each is used once."""

    def __init__(self) -> None:
        self._left = b""

    def hex(self) -> str:
        if not self._left:
            self._left = secrets.token_bytes(_ID_BYTES * 128)
        taken, self._left = self._left[:_ID_BYTES], self._left[_ID_BYTES:]
        return taken.hex()


_chance = _Chance()


def check_session_id(text: str, *, param: str = "session_id") -> str:
    """The id of a conversation as a program chose it: it becomes part of keys and paths."""
    if not 1 <= len(text) <= _LONGEST_SESSION_ID:
        raise BadRequest(f"`{param}` must have 1 to {_LONGEST_SESSION_ID} characters.", param=param)
    if not _is_plain(text):
        raise BadRequest(
            f"`{param}` may only hold printable ASCII characters, and no space at its ends.",
            param=param,
        )
    if "/" in text or "\\" in text or ".." in text or text == ".":
        raise BadRequest(f"`{param}` may not hold `/`, `\\` or `..`.", param=param)
    return text


def check_idempotency_key(text: str, *, param: str = "Idempotency-Key") -> str:
    """The key under which the answer to a request is found again."""
    if not 1 <= len(text) <= _LONGEST_IDEMPOTENCY_KEY or not _is_plain(text):
        raise BadRequest(
            f"`{param}` must be 1 to {_LONGEST_IDEMPOTENCY_KEY} printable ASCII characters, "
            "with no space at its ends.",
            param=param,
        )
    return text


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and text == text.strip()
