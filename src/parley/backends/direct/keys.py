"""The name of a conversation at a remote agent: platform, person and chat in one text. Pure."""

from __future__ import annotations

__all__ = ["build_thread_key", "parse_thread_key"]


def build_thread_key(platform: str, user_id: str, chat_id: str) -> str:
    """`6:matrix18:@alice:example.org2:C1`: each part after its length, so that no two are alike."""
    return "".join(f"{len(part)}:{part}" for part in (platform, user_id, chat_id))


def parse_thread_key(key: str) -> tuple[str, str, str]:
    """The parts of a key; a `ValueError` when it is none."""
    parts: list[str] = []
    rest = key
    for _ in range(3):
        length, colon, rest = rest.partition(":")
        if not colon or not (length.isascii() and length.isdigit()) or len(length) > 9:
            raise ValueError("not a thread key")
        size = int(length)
        if str(size) != length or size > len(rest):
            raise ValueError("not a thread key")
        parts.append(rest[:size])
        rest = rest[size:]
    if rest:
        raise ValueError("not a thread key")
    platform, user_id, chat_id = parts
    return platform, user_id, chat_id
