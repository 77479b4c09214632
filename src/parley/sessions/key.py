"""The name of a conversation, derived from profile and source, and read back. Pure.

`agent:<namespace>:<platform>:<chat type>`, then one of

    dm         <peer>  ·  <peer>:<thread>
    any other  <chat>  ·  <chat>:<participant>  ·  <chat>:<thread>:<participant>

where the participant of a thread that is one conversation for all is empty: `…:g1:t1:`.
No other part is ever empty, and a part holds no `:`, so a key is read by position and two
conversations never share one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from parley.profiles import DEFAULT_PROFILE, check_name
from parley.protocol import ParleyError, SessionSource

__all__ = [
    "SessionName",
    "build_session_key",
    "encode_part",
    "names_a_conversation",
    "namespace_of",
    "parse_session_key",
]

_MAIN: Final = "main"
# What would keep a key from being one line of UTF-8. None of it is printable.
_UNWRITABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_ESCAPES: Final = re.compile(r"(?:%[0-9A-F]{2})+")


class SessionName(NamedTuple):
    """What a session key says, part by part. A direct chat's `chat_id` is its peer."""

    profile: str
    platform: str
    chat_type: str
    chat_id: str | None = None
    thread_id: str | None = None
    participant: str | None = None

    @property
    def key(self) -> str:
        profile, platform, chat_type, chat, thread, participant = self
        if not platform or not chat_type:
            raise ParleyError("A source without a platform or a chat type has no session key.")
        key = f"agent:{namespace_of(profile)}:{encode_part(platform)}:{encode_part(chat_type)}"
        if chat:
            key += f":{encode_part(chat)}"
        if thread:
            key += f":{encode_part(thread)}"
        if participant:
            return f"{key}:{encode_part(participant)}"
        return f"{key}:" if chat and thread and chat_type != "dm" else key


def build_session_key(
    source: SessionSource,
    *,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> str:
    """The key of the conversation a message belongs to. What is empty counts as absent.

    A direct chat is named by its peer: the chat id, else the user. Where a platform leaves the
    chat id out, the user's id is the chat's, so both spellings are the same conversation.
    """
    name = DEFAULT_PROFILE if profile is None else profile
    platform, chat_type = source.platform, source.chat_type
    thread, participant = source.thread_id, source.user_id_alt or source.user_id
    if chat_type == "dm":
        peer = source.chat_id or participant
        return SessionName(name, platform, chat_type, peer, thread).key
    if not group_sessions_per_user or (thread and not thread_sessions_per_user):
        participant = None
    return SessionName(name, platform, chat_type, source.chat_id, thread, participant).key


def names_a_conversation(source: SessionSource) -> bool:
    """Whether its key is its own: it says which chat, or in a direct chat at least who speaks."""
    if not source.platform or not source.chat_type:
        return False
    speaker = source.chat_type == "dm" and (source.user_id_alt or source.user_id)
    return bool(source.chat_id or speaker)


def parse_session_key(key: str) -> SessionName:
    """The exact inverse of `build_session_key`: raises for what is no key of its making."""
    try:
        return _split(key)
    except (ValueError, ParleyError):
        raise ParleyError(
            f"{key[:100]!r} is not a session key; one looks like `agent:main:telegram:dm:99`."
        ) from None


def _split(key: str) -> SessionName:
    prefix, namespace, platform, chat_type, *places = key.split(":")
    if prefix != "agent" or namespace == DEFAULT_PROFILE:
        raise ValueError
    profile = DEFAULT_PROFILE if namespace == _MAIN else namespace
    check_name(profile)
    name = SessionName(profile, _decode(platform), _decode(chat_type))
    direct = name.chat_type == "dm"
    match places:
        case []:
            return name
        case [chat]:
            return name._replace(chat_id=_decode(chat))
        case [chat, thread] if direct:
            return name._replace(chat_id=_decode(chat), thread_id=_decode(thread))
        case [chat, participant]:
            return name._replace(chat_id=_decode(chat), participant=_decode(participant))
        case [chat, thread, participant] if not direct:
            return name._replace(
                chat_id=_decode(chat),
                thread_id=_decode(thread),
                participant=_decode(participant) if participant else None,
            )
    raise ValueError


@lru_cache(maxsize=1024)
def namespace_of(profile: str) -> str:
    """What stands for a profile in its keys."""
    check_name(profile)
    return _MAIN if profile == DEFAULT_PROFILE else profile


def encode_part(part: str) -> str:
    """A part of a key: ordinary ids as they are, what would divide or break it as `%XX`."""
    part = part.replace("%", "%25").replace(":", "%3A")
    return part if part.isprintable() else _UNWRITABLE.sub(_escape, part)


def _escape(found: re.Match[str]) -> str:
    # A lone surrogate, which JSON may bring, has bytes too; they are no other character's.
    return "%" + found[0].encode(errors="surrogatepass").hex("%").upper()


def _decode(part: str) -> str:
    """Raises `ValueError` unless it is written exactly as `encode_part` writes it."""
    text = _ESCAPES.sub(_unescape, part)
    if not text or encode_part(text) != part:
        raise ValueError
    return text


def _unescape(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("%", "")).decode(errors="surrogatepass")
