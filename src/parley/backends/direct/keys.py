"""The name of a conversation at a remote agent: platform, person, chat and profile in one text.

Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from parley.profiles import DEFAULT_PROFILE

__all__ = ["ThreadKey", "build_thread_key", "parse_thread_key"]


class ThreadKey(NamedTuple):
    """The parts of a thread key."""

    platform: str
    user_id: str
    chat_id: str
    profile: str = DEFAULT_PROFILE


def build_thread_key(
    platform: str, user_id: str, chat_id: str, *, profile: str | None = None
) -> str:
    """`6:matrix18:@alice:example.org2:C1`: each part after its length, so that no two are alike.

    A named profile is a fourth part: `6:matrix18:@alice:example.org2:C15:coder`. Without it, two
    profiles that use the same agent would share a conversation there.
    """
    named = () if profile in (None, DEFAULT_PROFILE) else (profile,)
    return "".join(f"{len(part)}:{part}" for part in (platform, user_id, chat_id, *named))


def parse_thread_key(key: str) -> ThreadKey:
    """The parts of a key; a `ValueError` when it is none."""
    parts: list[str] = []
    rest = key
    while rest and len(parts) < 4:
        length, colon, rest = rest.partition(":")
        if not colon or not (length.isascii() and length.isdigit()) or len(length) > 9:
            raise ValueError("not a thread key")
        size = int(length)
        if str(size) != length or size > len(rest):
            raise ValueError("not a thread key")
        parts.append(rest[:size])
        rest = rest[size:]
    if rest or len(parts) < 3 or parts[3:] == [DEFAULT_PROFILE]:
        raise ValueError("not a thread key")
    return ThreadKey(*parts)
