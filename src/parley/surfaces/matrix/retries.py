"""How long to wait before a call of the homeserver is made again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from parley.surfaces.matrix.connection import MatrixFault

__all__ = ["patiently", "pause_before"]

_T = TypeVar("_T")

_LONGEST: Final = 300.0
_TRIES: Final = 4
_LONGEST_WAIT: Final = 10.0


def pause_before(attempt: int, after: float | None) -> float:
    """Longer from attempt to attempt, and never shorter than the server asks for (`after`)."""
    longest = min(_LONGEST, 0.5 * 2.0 ** min(attempt, 16))
    pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
    return max(pause, after or 0.0)


async def patiently(call: Callable[[], Awaitable[_T]]) -> _T:
    """Make a call again when the server says that we are too fast, if it need not wait long.

    Only then is it sure that nothing was done: other faults are for the caller to judge.
    """
    for attempt in range(_TRIES):
        try:
            return await call()
        except MatrixFault as fault:
            pause = pause_before(attempt, fault.after)
            if fault.status != 429 or attempt == _TRIES - 1 or pause > _LONGEST_WAIT:
                raise
            await asyncio.sleep(pause)
    raise AssertionError("the last attempt returns or raises")
