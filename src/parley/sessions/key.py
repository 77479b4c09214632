"""The name of a conversation, derived from profile and source. Pure."""

from __future__ import annotations

from parley.protocol import SessionSource

__all__ = ["build_session_key"]


def build_session_key(
    source: SessionSource,
    *,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> str:
    """`agent:<namespace>:<platform>:<chat type>:…`, readable by position.

    `:` and `%` inside a component are percent-encoded, so two sources never share a key.
    """
    namespace = "main" if profile in (None, "default") else profile
    parts = ["agent", namespace or "main", source.platform, source.chat_type]
    participant = source.user_id_alt or source.user_id
    if source.chat_type == "dm":
        parts += [part for part in (source.chat_id or participant, source.thread_id) if part]
    else:
        parts += [part for part in (source.chat_id, source.thread_id) if part]
        per_user = group_sessions_per_user and (not source.thread_id or thread_sessions_per_user)
        if per_user and participant:
            parts.append(participant)
    return ":".join(_encode(part) for part in parts)


def _encode(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")
