"""How long an agent is waited for that was there a moment ago, such as one that is restarted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from parley.backends.direct.faults import (
    AGENT_CLOSED,
    AGENT_REFUSED,
    AGENT_UNREACHABLE,
    GRACEFUL_DISCONNECT,
    PlatformError,
)

__all__ = ["Hope", "is_away", "is_gone"]

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


def is_away(error: PlatformError) -> bool:
    """It was not reached, so that nothing was said to it."""
    passing = error.kind in {"unreachable", "overloaded"}
    return passing and error.code in {AGENT_UNREACHABLE, AGENT_REFUSED}


def is_gone(error: PlatformError) -> bool:
    """It went in the midst of things; what was said to it, it may have heard."""
    return error.code in {AGENT_CLOSED, GRACEFUL_DISCONNECT} and error.kind != "too_long"


@dataclass(slots=True)
class Hope:
    """That of one turn: so many `seconds` each time that it is away.

    `times`: how often it may go before the answer is complete. One that always does is not helped.
    """

    seconds: float
    times: int = 2
    _until: float | None = None
    _pause: float = _FIRST_PAUSE

    async def after(self, error: PlatformError) -> bool:
        """Wait a little, longer each time; False when it is no use any more."""
        if is_gone(error):
            self.times -= 1
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until, self._pause = now + self.seconds, _FIRST_PAUSE
        if self.times < 0 or now + self._pause > self._until:
            return False
        await asyncio.sleep(self._pause)
        self._pause = min(_LONGEST_PAUSE, self._pause * 2)
        return True

    def fulfilled(self) -> None:
        """It answers again."""
        self._until = None
