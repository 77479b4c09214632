"""Waiting for a fact, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

__all__ = ["until", "until_now", "until_true"]


async def until(fact: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Come back as soon as `fact()` holds; fail when it does not come."""
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.005)


async def until_true(fact: Callable[[], Awaitable[object]], *, seconds: float = 60.0) -> None:
    """The same for a fact that has to be asked for."""
    deadline = time.monotonic() + seconds
    while not await fact():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.02)


def until_now(fact: Callable[[], object], *, seconds: float = 60.0) -> None:
    """The same where there is no event loop."""
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
