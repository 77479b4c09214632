"""What the running turn's own code may ask about it, through context variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field

from parley.protocol import SessionSource

__all__ = [
    "SessionTokens",
    "async_delivery_supported",
    "bound_turn",
    "clear_session_vars",
    "get_session_env",
    "set_session_vars",
]


@dataclass(frozen=True, slots=True)
class _Running:
    values: Mapping[str, str] = field(default_factory=dict)
    async_delivery: bool = True


_UNBOUND = _Running()
_running: ContextVar[_Running] = ContextVar("parley_running_turn", default=_UNBOUND)

SessionTokens = Token[_Running]


def set_session_vars(*, async_delivery: bool = True, **values: str | None) -> SessionTokens:
    """Bind the running turn: `platform`, `chat_id`, `session_key` and the like."""
    known = {name: value for name, value in values.items() if value is not None}
    return _running.set(_Running(known, async_delivery))


def clear_session_vars(tokens: SessionTokens) -> None:
    """Unbind; what was bound before `set_session_vars` holds again."""
    _running.reset(tokens)


@contextmanager
def bound_turn(
    source: SessionSource,
    *,
    async_delivery: bool,
    session_key: str,
    session_id: str,
    memory_key: str | None = None,
) -> Iterator[None]:
    """The one way a turn is bound, whichever surface it came by, and for no longer than it runs.

    What the channel can do is said here, of this turn: the same session may go on elsewhere.
    """
    tokens = set_session_vars(
        async_delivery=async_delivery,
        profile=source.profile,
        platform=source.platform,
        chat_id=source.chat_id,
        thread_id=source.thread_id,
        user_id=source.user_id,
        session_key=session_key,
        session_id=session_id,
        memory_key=memory_key,
    )
    try:
        yield
    finally:
        clear_session_vars(tokens)


def get_session_env(name: str) -> str:
    """A bound value by its short name or as `PARLEY_SESSION_<NAME>`; empty when unbound."""
    short = name.lower()
    for prefix in ("parley_session_", "hermes_session_"):
        short = short.removeprefix(prefix)
    return _running.get().values.get(short, "")


def async_delivery_supported() -> bool:
    """Whether this turn's channel can deliver later. Unbound or cleared: yes."""
    return _running.get().async_delivery
