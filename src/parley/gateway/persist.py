"""Waiting for a store that cannot write just now, such as on a full disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from parley.storage.contract import StoreUnavailable

__all__ = ["until_stored"]

_log = logging.getLogger("parley.persist")

T = TypeVar("T")


async def until_stored(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until the store takes it. Only for what must not be lost once it happened."""
    pause = 0.1
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            _log.error("store_fault", extra={"why": str(error), "again_in": pause})
            await asyncio.sleep(pause)
            pause = min(pause * 2, 30.0)
