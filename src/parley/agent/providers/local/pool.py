"""The children that run models, shared: who wants the same weights in the same way, gets the same.

Several profiles in one process use one pool. It is handed to them, and logs where its owner says.
"""

from __future__ import annotations

import asyncio
import contextvars
from pathlib import Path

from parley.agent.providers.base import ProviderError
from parley.agent.providers.local.process import ModelProcess, Wanted

__all__ = ["CLOSED", "LOG_NAME", "Lease", "ModelPool"]

CLOSED = "The local model has been closed: Parley is stopping."
LOG_NAME = "local-model.log"


class ModelPool:
    """Children by what they serve. One lives for as long as somebody has a lease on it."""

    def __init__(self, log_dir: Path | None = None) -> None:
        self._log_file = None if log_dir is None else log_dir / LOG_NAME
        self._shared: dict[Wanted, _SharedModel] = {}

    def lease(self, wanted: Wanted) -> Lease:
        """The right to use the child that serves `wanted`, until it is given back."""
        shared = self._shared.get(wanted)
        if shared is None:
            shared = self._shared[wanted] = _SharedModel(wanted, self._log_file)
        lease = Lease(self, wanted, shared)
        shared.leases.add(lease)
        return lease

    async def _give_back(self, lease: Lease, shared: _SharedModel) -> None:
        if lease not in shared.leases:
            return
        shared.leases.remove(lease)
        if not shared.leases:
            # Out of the pool first: who comes while it ends gets another.
            del self._shared[lease.wanted]
            await shared.end()


class Lease:
    """One user's share of a child."""

    def __init__(self, pool: ModelPool, wanted: Wanted, shared: _SharedModel) -> None:
        self.wanted = wanted
        self._pool = pool
        self._shared = shared

    @property
    def running(self) -> ModelProcess | None:
        """The child, when it is ready and alive."""
        return self._shared.running

    async def ready(self) -> ModelProcess:
        """The child, started if it must be. Giving up the wait takes it from nobody else."""
        if self not in self._shared.leases:
            raise ProviderError(CLOSED, kind="refused")
        return await self._shared.ready()

    async def give_back(self) -> None:
        """The child ends with the last lease; others do not notice."""
        await self._pool._give_back(self, self._shared)


class _SharedModel:
    """A child that is started when somebody needs it, and started anew once it died."""

    def __init__(self, wanted: Wanted, log_file: Path | None) -> None:
        self.leases: set[Lease] = set()
        self._wanted = wanted
        self._log_file = log_file
        self._process: ModelProcess | None = None
        self._starting: asyncio.Task[ModelProcess] | None = None

    @property
    def running(self) -> ModelProcess | None:
        process = self._process
        return process if process is not None and process.alive else None

    async def ready(self) -> ModelProcess:
        if self.running is not None:
            return self.running
        if self._starting is None:
            self._starting = asyncio.create_task(
                self._start(),
                name="local model",
                context=contextvars.Context(),  # it is nobody's in particular
            )
            self._starting.add_done_callback(self._started)
        try:
            # Shielded: who gives up must not take the start away from the others.
            return await asyncio.shield(self._starting)
        except ProviderError as error:
            # Each gets an error of its own: what one hangs onto it the others must not see.
            raise ProviderError(str(error), kind=error.kind) from error.__cause__

    async def end(self) -> None:
        starting, self._starting = self._starting, None
        process, self._process = self._process, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
            if not starting.cancelled() and starting.exception() is None:
                process = starting.result()  # it was ready just before
        if process is not None:
            await process.stop()

    async def _start(self) -> ModelProcess:
        died, self._process = self._process, None
        if died is not None:
            await died.stop()
        return await ModelProcess.start(self._wanted, log_file=self._log_file)

    def _started(self, task: asyncio.Task[ModelProcess]) -> None:
        if self._starting is not task:
            return
        self._starting = None
        # A failure is for those who wait; a warm-up has nobody, and the next request tries again.
        if not task.cancelled() and task.exception() is None:
            self._process = task.result()
