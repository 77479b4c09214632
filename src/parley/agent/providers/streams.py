"""Reading another provider's stream to its end, and closing it for certain."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from parley.agent.providers.base import (
    ModelEvent,
    ModelReply,
    ModelRequest,
    Provider,
    ProviderError,
)

__all__ = ["events_of"]


async def events_of(provider: Provider, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
    """Yield what `provider` streams, up to its reply; closing this stops the work at once."""
    events = provider.stream(request)
    try:
        async for event in events:
            yield event
            if isinstance(event, ModelReply):
                return
    finally:
        # Left to itself an unfinished generator would be closed at some later time.
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    raise ProviderError(
        f"{provider.label} ended without a reply; try again in a moment.", kind="broken"
    )
