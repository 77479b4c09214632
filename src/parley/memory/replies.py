"""A model's whole reply to housekeeping, within limits."""

from __future__ import annotations

import asyncio
from typing import Final

from parley.agent.providers.base import ModelReply, ModelRequest, Provider, ProviderError
from parley.protocol import TextDelta, Usage

__all__ = ["reply_of"]

_LONGEST: Final = 100_000  # characters
_SECONDS: Final = 300.0


async def reply_of(provider: Provider, request: ModelRequest) -> ModelReply:
    """One that goes on and on is broken off, and counts as empty."""
    stream = provider.stream(request)
    size = 0
    try:
        async with asyncio.timeout(_SECONDS):
            async for event in stream:
                if isinstance(event, ModelReply):
                    return event
                size += len(event.text) if isinstance(event, TextDelta) else 0
                if size > _LONGEST:
                    return ModelReply("", Usage(provider.label, provider.model))
    except TimeoutError:
        sentence = f"The model took more than {_SECONDS:.0f} seconds to tend memory."
        raise ProviderError(sentence, kind="timeout") from None
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    raise ProviderError("The model ended without an answer.", kind="broken")
