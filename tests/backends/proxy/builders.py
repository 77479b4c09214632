"""Builders for the proxy's tests: a turn, and a backend that hands it to a server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from parley.agent.hands import Ask
from parley.backends.base import Turn
from parley.backends.proxy import ProxyBackend
from parley.config import Settings
from parley.profiles import Profile
from parley.protocol import (
    ChatMessage,
    Failed,
    Final,
    HistoryEntry,
    Request,
    SessionSource,
    TurnEvent,
)
from tests.servers.raw_sse import Answer, RawServer, Seen

__all__ = [
    "KEY",
    "PLAIN",
    "a_turn",
    "all_of",
    "backend_at",
    "ending",
    "proxied",
    "run",
    "sentence",
    "served",
]

KEY = "sk-far-0123456789"
PLAIN = SessionSource("terminal", "main", user_id="owner")
_PROFILE = Profile("default", Path("/nowhere"))

T = TypeVar("T")


async def _nothing() -> tuple[ChatMessage, ...]:
    return ()


async def _fine() -> None:
    return


def a_turn(
    text: str = "hi",
    *,
    history: Sequence[ChatMessage] = (),
    progress: Sequence[ChatMessage] | None = None,
    source: SessionSource = PLAIN,
    attempt: int = 1,
    request: Request | None = None,
    ask: Ask | None = None,
    check: Callable[[], Awaitable[None]] = _fine,
    steer: Callable[[], Awaitable[tuple[ChatMessage, ...]]] = _nothing,
) -> Turn:
    return Turn(
        id=1,
        attempt=attempt,
        profile=_PROFILE,
        session_key="agent:main:terminal:dm:main",
        session_id="sess-123",
        source=source,
        history=tuple(HistoryEntry(n, message) for n, message in enumerate(history, 1)),
        progress=tuple(progress) if progress is not None else (ChatMessage("user", text),),
        provider=None,
        model=None,
        async_delivery=True,
        steer=steer,
        check=check,
        request=request,
        ask=ask,
    )


def backend_at(url: str, *, key: str | None = None, **gateway: Any) -> ProxyBackend:
    settings = Settings.model_validate({"gateway": {"proxy_url": url, **gateway}})
    held = {"GATEWAY_PROXY_KEY": key}
    return ProxyBackend(_PROFILE, settings, url=url, secret=held.get)


@asynccontextmanager
async def proxied(
    script: Callable[[Seen], Answer | None] | Answer, *, key: str | None = None, **gateway: Any
) -> AsyncIterator[tuple[ProxyBackend, RawServer]]:
    """A backend and the far end that it asks."""
    reply = (lambda _: script) if isinstance(script, Answer) else script
    async with RawServer(reply) as server:
        backend = backend_at(server.url, key=key, **gateway)
        try:
            yield backend, server
        finally:
            await backend.close()


async def served(
    script: Callable[[Seen], Answer | None] | Answer,
    turn: Turn | None = None,
    *,
    key: str | None = None,
    **gateway: Any,
) -> list[TurnEvent]:
    """All events of one turn."""
    async with proxied(script, key=key, **gateway) as (backend, _):
        return await run(backend, turn or a_turn())


async def run(backend: ProxyBackend, turn: Turn | None = None) -> list[TurnEvent]:
    async with aclosing(backend.run(turn or a_turn())) as events:
        return [event async for event in events]


def ending(events: Sequence[TurnEvent]) -> Final | Failed:
    last = events[-1]
    assert isinstance(last, Final | Failed)
    assert not any(isinstance(event, Final | Failed) for event in events[:-1])
    return last


def sentence(events: Sequence[TurnEvent]) -> str:
    """That the turn failed with one clear sentence, and which."""
    last = ending(events)
    assert isinstance(last, Failed), last
    assert "\n" not in last.sentence
    assert last.sentence.endswith((".", "…"))
    assert KEY not in last.sentence + last.cause
    return last.sentence


def all_of(events: Sequence[TurnEvent], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]
