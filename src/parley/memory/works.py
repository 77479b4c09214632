"""What is under way for sessions: one thing at a time for each, broken off when somebody talks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from parley.memory.rounds import Aim
from parley.storage.memory import Tended

__all__ = ["Work", "Works"]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Work:
    """For the session `id`, as it was last `seen`; its `lane` is known once it was read.

    `alone`: it asks a model that does one thing at a time.
    """

    id: str
    seen: Tended | None = None
    lane: str | None = None
    alone: bool = False
    aim: Aim = field(default_factory=Aim)
    began: float = field(default_factory=time.monotonic)


class Works:
    """Each runs as a task of its own, which ends with whoever waits for it."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Work, asyncio.Task[object]]] = {}

    @property
    def ids(self) -> Collection[str]:
        return self._running.keys()

    def begin(self, id: str, run: Callable[[Work], Awaitable[T]]) -> asyncio.Task[T]:
        work = Work(id)

        async def running() -> T:
            return await run(work)

        task = asyncio.create_task(running(), name=f"memory of {id}")
        self._running[id] = (work, task)
        task.add_done_callback(lambda _: self._running.pop(id))
        return task

    async def run(self, id: str, run: Callable[[Work], Awaitable[T]]) -> T | None:
        """After what is under way for it; None when it was broken off."""
        while (other := self._running.get(id)) is not None:
            await asyncio.wait({other[1]})
        task = self.begin(id, run)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        return None if task.cancelled() else task.result()

    def step_aside(self, lane: str) -> None:
        """Break off what is made for this lane, and what asks a model that others wait for."""
        for work, task in self._running.values():
            if work.alone or work.lane == lane:
                task.cancel()

    def break_off(self) -> list[asyncio.Task[object]]:
        """All of it; the tasks are to be awaited."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        return tasks
