"""Background work of one profile: it outlives turns and restarts, and its end is told once.

A row says who began it, in which session and generation, and where its end is told. The report
goes in by the front door under a name of its own, so one that was told before is not told again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from functools import partial

from parley.agent.processes import Ended, Matched, Process, Processes
from parley.gateway.intake import Intake
from parley.gateway.persist import until_stored
from parley.gateway.reports import match_report, never_began, process_report
from parley.gateway.tasks import Tasks
from parley.protocol import InboundMessage
from parley.storage.contract import Store, StoreClosed
from parley.storage.hands import Work, WorkState

__all__ = ["Background"]

_log = logging.getLogger("parley.background")

_KEPT_SECONDS = 7 * 86_400.0
_BEGUN_WITHIN = 60.0
_REPORTED_BYTES = 16_000
_STATES: dict[str, WorkState] = {"done": "done", "killed": "stopped", "lost": "lost"}


class Background:
    """Watches what runs, and reports what ended: `start`, then `close`."""

    def __init__(self, store: Store, intake: Intake, processes: Processes, tasks: Tasks) -> None:
        self._store = store
        self._intake = intake
        self._processes = processes
        self._work_of_others = tasks
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Find what an earlier process left, and watch what still runs of it."""
        self._processes.on_end = self._ended
        self._processes.on_match = self._matched
        await self._processes.open()

    async def start(self) -> None:
        """Report what ended meanwhile, and end what only a turn waited for that is over."""
        for running in self._processes.running():
            if await self._store.work(running.id) is None:
                self._keep(self._end_unless_waited_for(running))
        for work in await self._store.works():
            if work.kind == "task":
                self._keep(self._work_of_others.take_up(work))
                continue
            process = self._processes.get(work.id)
            if process is None:
                self._keep(self._lose(work))
            elif process.state != "running":
                self._keep(self._finish_late(work.id))
        self._keep(self._forget_old())

    async def _forget_old(self) -> None:
        await self._store.prune_work(time.time() - _KEPT_SECONDS)

    async def close(self) -> None:
        """Stop watching. What runs goes on, and the next gateway takes it up."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._processes.close()

    async def _end_unless_waited_for(self, process: Process) -> None:
        """Without a row: a turn ran it and waits for it, unless that turn is over."""
        if not await self._store.is_under_way(process.lane):
            await self._processes.kill(process.id)

    def follow(self, work: Work) -> None:
        """See a delegated task to its end, and report it."""
        self._keep(self._work_of_others.follow(work))

    def _ended(self, ended: Ended) -> None:
        self._keep(self._finish(ended.process.id, ended.lines))

    def _matched(self, matched: Matched) -> None:
        self._keep(self._tell_match(matched))

    async def _finish(self, id: str, lines: Sequence[str] = ()) -> None:
        work, process = await self._store.work(id), self._processes.get(id)
        if work is None or process is None or work.state != "running":
            return
        if work.notify and not _was_asked_to_end(process):
            output = await self._processes.output(id, _REPORTED_BYTES)
            await self._report(work, process_report(work, process, output, lines))
        state = _STATES.get(process.state, "failed")
        result = {"exit_code": process.exit_code, "reason": process.reason}
        await until_stored(partial(self._store.end_work, id, state, result))

    async def _finish_late(self, id: str) -> None:
        """It ended while no gateway watched, and may have printed what was watched for."""
        await self._finish(id, await self._processes.missed(id))

    async def _lose(self, work: Work) -> None:
        """Tell that it never began, unless the turn that noted it is resumed and begins it now."""
        await asyncio.sleep(_BEGUN_WITHIN)
        if self._processes.get(work.id) is not None:
            return
        if work.notify:
            await self._report(work, never_began(work))
        await until_stored(partial(self._store.end_work, work.id, "lost"))

    async def _tell_match(self, matched: Matched) -> None:
        work = await self._store.work(matched.process.id)
        if work is not None and work.notify:
            await self._report(work, match_report(work, matched))

    async def _report(self, work: Work, message: InboundMessage) -> None:
        await until_stored(partial(self._intake.admit, message, lane=work.lane))

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(self._supervised(work), name="work")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _supervised(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except StoreClosed:
            _log.info("report_left")
        except Exception:  # noqa: BLE001 - the supervisor: the next start takes it up again
            _log.exception("report_failed")


def _was_asked_to_end(process: Process) -> bool:
    """Whoever ended it knows that it has ended."""
    return process.state == "killed" and process.reason in (None, "killed")
