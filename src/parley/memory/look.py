"""One look at what is due: sessions one after the other, found in batches, each given once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from parley.storage.memory import MemoryStore, Tended

__all__ = ["Look"]

_BATCH: Final = 50


class Look:
    """`running` are the sessions that something is under way for: they are not even read."""

    def __init__(
        self,
        sessions: MemoryStore,
        may_tend: Callable[[Tended], bool],
        running: Callable[[], Collection[str]],
    ) -> None:
        self._sessions = sessions
        self._may_tend = may_tend
        self._running = running
        self._now = time.time()
        self._found: deque[Tended] = deque()
        self._last: Tended | None = None
        self._left = 0
        self._lock = asyncio.Lock()

    @property
    def waiting(self) -> int:
        """How many were found and not given."""
        return self._left + len(self._found)

    async def next(self) -> Tended | None:
        async with self._lock:
            while True:
                while self._found:
                    session = self._found.popleft()
                    if self._may_tend(session):
                        return session
                    self._left += 1
                batch = await self._sessions.untended(
                    self._now, limit=_BATCH, without=self._running(), behind=self._last
                )
                if not batch:
                    return None
                self._last = batch[-1]
                self._found.extend(batch)
