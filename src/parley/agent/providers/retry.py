"""Asking again when a model call failed for a reason that passes."""

from __future__ import annotations

import asyncio
import random as random_numbers
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from parley.agent.providers.base import ModelEvent, ModelRequest, Provider, ProviderError
from parley.agent.providers.streams import events_of
from parley.protocol import TextReset

__all__ = ["RetryingProvider"]


class RetryingProvider:
    """Tries `inner` up to `attempts` times, with growing pauses of random length between.

    A server that names its own pause is obeyed, unless all pauses together would take longer than
    the request's `longest_wait`.
    """

    def __init__(
        self,
        inner: Provider,
        *,
        attempts: int = 4,
        base_delay: float = 0.5,
        max_delay: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        self._inner = inner
        self._attempts = attempts
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._sleep = sleep
        self._random = random

    @property
    def label(self) -> str:
        return self._inner.label

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def context_window(self) -> int:
        return self._inner.context_window

    @property
    def offers_tools(self) -> bool:
        return self._inner.offers_tools

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream from `inner`; text of a try that failed is withdrawn before the next one."""
        attempt, left = 1, request.longest_wait
        while True:
            has_spoken = False
            try:
                async with aclosing(events_of(self._inner, request)) as events:
                    async for event in events:
                        has_spoken = not isinstance(event, TextReset)
                        yield event
            except ProviderError as error:
                if not error.worth_retrying or attempt >= self._attempts:
                    raise
                pause = self._pause(error, attempt, left)
                left -= pause
            else:
                return
            await self._sleep(pause)
            if has_spoken:
                yield TextReset()
            attempt += 1

    async def check(self) -> None:
        """Check `inner` once: who checks wants to know how it is now."""
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()

    def _pause(self, error: ProviderError, attempt: int, left: float) -> float:
        asked = error.retry_after
        if asked is None:
            longest = min(self._max_delay, self._base_delay * 2.0 ** (attempt - 1))
            return self._random() * longest
        if asked > left:
            raise ProviderError(
                f"{self.label} asks to be left alone for {_spoken(asked)}: try again then, or "
                "use another provider.",
                kind=error.kind,
                status=error.status,
                retry_after=asked,
            ) from error
        # Never earlier than asked, and not all callers at the same instant.
        return asked + self._random() * self._base_delay


def _spoken(seconds: float) -> str:
    for size, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
