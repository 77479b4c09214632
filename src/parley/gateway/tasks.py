"""Delegated tasks: turns of their own, in lanes of their own, durable like every other turn.

Whoever delegated one waits for it, or hears of its end as a message in the session that asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from parley.agent.hands import Delegated
from parley.agent.processes import Processes
from parley.agent.taint import sources_named
from parley.gateway.lanes import Lanes, RunningTurn
from parley.gateway.persist import until_stored
from parley.gateway.reports import task_report
from parley.protocol import Behalf, ChatMessage, InboundMessage, Request, SessionSource
from parley.sessions.store import SessionStore
from parley.storage.contract import LeaseLost, Store, TurnResult
from parley.storage.hands import Work, WorkState

__all__ = ["TASK_PLATFORM", "Tasks"]

_log = logging.getLogger("parley.tasks")

TASK_PLATFORM = "task"

_INSTRUCTIONS = (
    "Another agent delegated a task to you. Nobody reads along or can be asked: work on it alone, "
    "then answer with the result and what whoever asked must know."
)
_STATES: Mapping[str, WorkState] = {"done": "done", "failed": "failed"}

Report = Callable[[Work, InboundMessage], Awaitable[None]]


class Tasks:
    """The delegated tasks of one profile. `report` tells of the end of one."""

    def __init__(
        self,
        store: Store,
        sessions: SessionStore,
        lanes: Lanes,
        processes: Processes,
        *,
        profile: str,
        report: Report,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._lanes = lanes
        self._processes = processes
        self._profile = profile
        self._report = report
        self._ends: dict[str, asyncio.Event] = {}
        self._stopped: set[str] = set()

    async def begin(
        self,
        work: Work,
        goal: str,
        *,
        behalf: Behalf,
        tools: Sequence[str] | None,
        outside: str = "",
    ) -> Work:
        """Once under its id; the row comes first, so that a task is never without one."""
        allowed = None if tools is None else list(tools)
        body = {"goal": goal, "user": behalf.user, "platform": behalf.platform, "tools": allowed}
        body |= {"outside": outside} if outside else {}
        work = replace(work, body={**work.body, **body})
        await until_stored(partial(self._store.begin_work, work))
        await self._submit(work)
        return work

    async def result(self, id: str) -> Delegated:
        """Wait for its end. Cancelled: the task is stopped, unless the gateway only leaves."""
        work = await self._store.work(id)
        if work is None:
            return Delegated(id, "There is no such task.", ok=False)
        try:
            found = await self._wait(work)
        except asyncio.CancelledError:
            if not self._lanes.is_draining:
                await asyncio.shield(self.stop(work))
            raise
        await self._finish(work, found)
        return _as_result(id, found)

    async def take_up(self, work: Work) -> None:
        """After a restart: submit what was never submitted, and see to its end.

        One that nobody waits for any more, and nobody is to be told of, is not worth its money.
        """
        if not work.notify and not await self._store.is_running(work.body["turn"]):
            await self.stop(work)
            return
        if await self._look(work) is None:
            await self._submit(work)
        await self.follow(work)

    async def follow(self, work: Work) -> None:
        """See a task to its end, and report it where that was promised.

        Whoever stopped it knows that it has ended.
        """
        found = await self._wait(work)
        if work.notify and work.id not in self._stopped:
            told = _as_result(work.id, found)
            report = task_report(work, told.result or "", ok=told.ok, outside=told.outside)
            await self._report(work, report)
        self._stopped.discard(work.id)
        await self._finish(work, found)

    async def stop(self, work: Work) -> None:
        if work.notify:
            self._stopped.add(work.id)
        await self._lanes.stop(self._lane(work.id), drop_queued=True)
        await until_stored(partial(self._store.end_work, work.id, "stopped"))
        self._wake(work.id)
        await self._end_processes(work.id)

    async def serve(self, runner: Callable[[RunningTurn], Awaitable[None]]) -> None:
        async def run(running: RunningTurn) -> None:
            try:
                await runner(running)
            except LeaseLost:
                _log.info("task_stopped", extra={"turn": running.claim.turn})
            finally:
                self._wake(running.claim.source.chat_id)

        await self._lanes.serve(run)

    async def _wait(self, work: Work) -> TurnResult:
        while True:
            ended = self._ends.setdefault(work.id, asyncio.Event())
            found = await self._look(work)
            if found is not None and found.state not in ("queued", "running"):
                self._wake(work.id)
                return found
            await ended.wait()

    async def _look(self, work: Work) -> TurnResult | None:
        return await self._store.turn_result(_name(work.id))

    async def _finish(self, work: Work, found: TurnResult) -> None:
        state = _STATES.get(found.state, "stopped")
        await until_stored(partial(self._store.end_work, work.id, state))
        await self._end_processes(work.id)

    async def _end_processes(self, id: str) -> None:
        """Nobody is left who could look after what the task began."""
        for process in self._processes.listing(self._lane(id)):
            if process.state == "running":
                await self._processes.kill(process.id)

    async def _submit(self, work: Work) -> None:
        body, source = work.body, self._source(work)
        allowed = body.get("tools")
        request = Request(
            id=work.id,
            messages=(ChatMessage("user", body["goal"], outside=body.get("outside")),),
            instructions=_INSTRUCTIONS,
            lasting=True,
            allowed=None if allowed is None else tuple(allowed),
            behalf=Behalf(body["user"], work.session, body["platform"]),
        )
        message = InboundMessage(
            source, body["goal"], event_id=work.id, internal=True, request=request
        )
        lane, name = self._lane(work.id), _name(work.id)
        await until_stored(partial(self._lanes.submit, lane, name, message))

    def _source(self, work: Work) -> SessionSource:
        return SessionSource(
            platform=TASK_PLATFORM,
            chat_id=work.id,
            user_id=work.source.user_id,
            user_name=work.source.user_name,
            profile=self._profile,
        )

    def _lane(self, id: str) -> str:
        return self._sessions.key_for(
            SessionSource(platform=TASK_PLATFORM, chat_id=id, profile=self._profile)
        )

    def _wake(self, id: str) -> None:
        """Whoever waits for this task looks again; several may."""
        if (ended := self._ends.pop(id, None)) is not None:
            ended.set()


def _name(id: str) -> str:
    """Under which a task's message is submitted."""
    return f"{TASK_PLATFORM}:{id}"


def _as_result(id: str, found: TurnResult) -> Delegated:
    said = [each.text for each in found.messages if each.role == "assistant" and each.text]
    if found.state == "done" and said:
        return Delegated(id, said[-1], outside=sources_named(found.messages))
    if found.state == "failed":
        return Delegated(id, said[-1] if said else "The task failed.", ok=False)
    return Delegated(id, "The task was stopped before it had a result.", ok=False)
