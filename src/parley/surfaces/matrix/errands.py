"""Work with the homeserver that goes on beside the rest, and again until it is done."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from parley.protocol import ParleyError
from parley.surfaces.matrix.connection import MatrixFault
from parley.surfaces.matrix.retries import pause_before

__all__ = ["Errands"]

_log = logging.getLogger("parley.matrix")

_GIVE_UP_AFTER: Final = 24 * 3600.0

Work = Callable[[], Awaitable[None]]
Failed = Callable[[ParleyError], Awaitable[None]]


class Errands:
    """One piece of work at a time for each key, and few at once in all."""

    def __init__(self, what: str, *, at_once: int) -> None:
        self._what = what
        self._turns = asyncio.Semaphore(at_once)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def has(self, key: str) -> bool:
        return key in self._tasks

    def begin(self, key: str, work: Work, failed: Failed, *, since: float | None = None) -> None:
        """`failed` is called when it cannot be done, or could not be for a day (`since` when)."""
        if key in self._tasks:
            return
        began = time.time() if since is None else since
        task = asyncio.create_task(self._run(work, failed, began), name=f"{self._what}-{key}")
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    async def drop(self, key: str) -> bool:
        """Whether there was anything to drop."""
        task = self._tasks.pop(key, None)
        if task is None:
            return False
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return True

    async def wait(self, key: str, seconds: float) -> None:
        """Until this piece of work is done, but no longer than that."""
        if task := self._tasks.get(key):
            await asyncio.wait([task], timeout=seconds)

    async def idle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks.values())
            await asyncio.sleep(0)

    async def close(self) -> None:
        for key in list(self._tasks):
            await self.drop(key)

    def _forget(self, key: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]

    async def _run(self, work: Work, failed: Failed, began: float) -> None:
        """The supervisor: whatever is not written down as done is taken up by the next run."""
        attempt = 0
        try:
            while True:
                try:
                    async with self._turns:
                        await work()
                        break
                except ParleyError as fault:
                    lost = isinstance(fault, MatrixFault) and not fault.is_passing
                    if lost or time.time() - began > _GIVE_UP_AFTER:
                        await failed(fault)
                        break
                    pause = pause_before(attempt, getattr(fault, "after", None))
                attempt += 1
                await asyncio.sleep(pause)
        except Exception:  # noqa: BLE001 - the supervisor
            _log.exception("errand_broke_off", extra={"what": self._what})
