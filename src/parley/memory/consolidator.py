"""Tends what is remembered while people are away: folds long conversations, takes facts from them.

Whoever talks goes first: a message that arrives breaks off what is made of its conversation, which
begins again later, from where it was. Nothing is stored half.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from parley.agent.providers.base import Provider
from parley.memory.asking import Prompt
from parley.memory.attention import Activity, Faults
from parley.memory.look import Look
from parley.memory.places import places_of
from parley.memory.rounds import Means, Wanted, run_round, usual_estimate
from parley.memory.works import Work, Works
from parley.protocol import ChatMessage, ParleyError, ToolSpec, Usage
from parley.storage.memory import Commit, MemoryStore, Tended

__all__ = ["MemoryConsolidator", "MemoryStatus", "Prompt"]

_log = logging.getLogger("parley.memory")

_MOST_ROUNDS: Final = 200
_LOOKS, _PAUSE = 100, 0.05


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """`waiting`: due, but somebody talks there. `failing`: tried again later, with the last reason.

    `tended` counts since the start.
    """

    waiting: int
    running: int
    failing: int
    last_fault: str | None
    tended: int


def usual_place(session: Tended) -> str:
    """Where what is said in it is kept."""
    return session.place or places_of(session.key, session.source).write


class MemoryConsolidator:
    """`start_background_task`, then `stop_background_task`. It may be used without either.

    `provider`, `context_window_tokens` and `get_tool_definitions` are for prompts that bring none
    of their own. Activity is recorded, and turns are known, by lane.
    """

    def __init__(  # noqa: PLR0917 - the first seven are how it is known
        self,
        workspace: Path,
        provider: Provider | None,
        model: str | None,
        sessions: MemoryStore,
        context_window_tokens: int | None,
        build_messages: Callable[[Tended, Sequence[ChatMessage]], Awaitable[Prompt | None]],
        get_tool_definitions: Callable[[], Sequence[ToolSpec]],
        *,
        place_of: Callable[[Tended], str] = usual_place,
        idle_check_interval: float = 60.0,
        learn: bool = True,
        is_busy: Callable[[str], bool] = lambda lane: False,
        is_anyone_busy: Callable[[], bool] = lambda: False,
        estimate: Callable[[Provider, int], int] | None = None,
        may_spend: Callable[[Tended, Provider, int], Awaitable[str | None]] | None = None,
        priced: Callable[[Usage], Usage] | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
        side_by_side: int = 2,
        on_commit: Callable[[Commit], None] | None = None,
    ) -> None:
        self.workspace = workspace
        self.model = model
        self._sessions = sessions
        self._means = Means(
            sessions,
            build_messages,
            place_of,
            provider=provider,
            window=context_window_tokens,
            tools=get_tool_definitions,
            estimate=estimate or usual_estimate,
            may_spend=may_spend,
            priced=priced,
            learn=learn,
        )
        self._interval = idle_check_interval
        self._is_busy = is_busy
        self._is_anyone_busy = is_anyone_busy
        self._prepare = prepare
        self._side_by_side = side_by_side
        self._slots = asyncio.Semaphore(side_by_side)
        self._on_commit = on_commit
        self._activity = Activity(2 * idle_check_interval)
        self._faults = Faults(idle_check_interval)
        self._works = Works()
        self._loop: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._waiting = 0
        self._tended = 0
        self._trouble: str | None = None
        self._unread: str | None = None

    # ── life ──

    async def start_background_task(self) -> None:
        """Look at sessions from now on; the first time after one interval."""
        if self._loop is not None and not self._loop.done() and not self._stop.is_set():
            return
        self._stop = asyncio.Event()
        self._loop = asyncio.create_task(self._keep_looking(self._stop), name="memory")

    async def stop_background_task(self) -> None:
        """Break off what is under way, and come back when it has ended."""
        self._stop.set()
        tasks, loop = self._works.break_off(), self._loop
        if loop is not None:
            loop.cancel()
            tasks.append(loop)
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._loop is loop:
            self._loop = None

    @property
    def status(self) -> MemoryStatus:
        return MemoryStatus(
            waiting=self._waiting,
            running=len(self._works.ids),
            failing=len(self._faults),
            last_fault=self._faults.last or self._trouble or self._unread,
            tended=self._tended,
        )

    # ── what happens in the chats ──

    def record_activity(self, key: str) -> None:
        """Somebody talks in this lane, or is answered there: housekeeping steps aside.

        A model that does one thing at a time is left to whoever talks anywhere.
        """
        self._activity.record(key)
        self._works.step_aside(key)

    def maybe_consolidate_by_tokens(self, session: Tended | str) -> None:
        """Fold it soon if it is over its budget; come back at once."""
        id = _id_of(session)
        if id not in self._works.ids and not self._stop.is_set():
            self._works.begin(id, self._fold_soon)

    async def maybe_consolidate_by_tokens_async(
        self, session: Tended | str, *, least: bool = False
    ) -> Commit | None:
        """Fold it if it is over its budget; with `least` all but the newest turns, even if not.

        None when there was nothing to fold, or somebody talks there: then it is done later.
        """
        commit, _ = await self._fold_now(_id_of(session), "compact" if least else "fold")
        return commit

    async def compact(self, session: Tended | str) -> Commit | None:
        """Fold all but the newest turns. When somebody talks there, go on as soon as they rest.

        None when there was nothing to fold.
        """
        found: Commit | None = None
        while True:
            commit, is_whole = await self._fold_now(_id_of(session), "compact")
            found = commit or found
            if is_whole:
                return found
            if self._stop.is_set():
                raise asyncio.CancelledError
            await asyncio.sleep(min(self._interval, 1.0))

    async def _fold_now(self, id: str, wanted: Wanted) -> tuple[Commit | None, bool]:
        done = await self._works.run(id, partial(self._fold, wanted=wanted))
        return (None, False) if done is None else done

    async def tend(self, session: Tended | str) -> None:
        """Fold it when that is due, then learn from it. What goes wrong shows in the status."""
        await self._works.run(_id_of(session), self._tend)

    # ── the look ──

    async def tick(self) -> int:
        """Tend every session that is due and where nobody talks; count them."""
        await self._get_ready()
        return await self._look()

    async def _look(self) -> int:
        self._activity.prune()
        self._faults.prune()
        look = Look(self._sessions, self._may_tend, lambda: self._works.ids)

        async def work() -> int:
            count = 0
            while (session := await look.next()) is not None:
                self._waiting = look.waiting
                count += bool(await self._works.run(session.id, self._tend))
            return count

        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(work()) for _ in range(self._side_by_side)]
        self._waiting = look.waiting
        self._trouble = None
        return sum(worker.result() for worker in workers)

    def _may_tend(self, session: Tended) -> bool:
        return (
            session.id not in self._works.ids
            and self._activity.rests(session.key)
            and not self._is_busy(session.key)
        )

    async def _keep_looking(self, stop: asyncio.Event) -> None:
        looks: set[asyncio.Task[None]] = set()
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval):
                        await stop.wait()
                if stop.is_set():
                    return
                await self._get_ready()
                # A conversation that takes long does not keep others from being looked at.
                if len(looks) < self._side_by_side:
                    look = asyncio.create_task(self._supervised(), name="memory look")
                    looks.add(look)
                    look.add_done_callback(looks.discard)
        finally:
            for look in looks:
                look.cancel()
            await asyncio.gather(*looks, return_exceptions=True)

    async def _supervised(self) -> None:
        try:
            await self._look()
        except Exception as error:  # noqa: BLE001 - the supervisor: it looks again
            _log.exception("memory_look_failed")
            self._trouble = _sentence(error)

    async def _get_ready(self) -> None:
        if self._prepare is None:
            return
        try:
            await self._prepare()
        except Exception:  # noqa: BLE001 - the supervisor: conversations are tended all the same
            _log.exception("memory_prepare_failed")

    # ── one session ──

    async def _fresh(self, work: Work) -> Tended | None:
        """The session as it is now; None when it is gone, or somebody talks there."""
        session = await self._sessions.tended(work.id)
        work.seen = session
        if session is None:
            return None
        work.lane = session.key
        talks = self._is_busy(session.key) or self._activity.since(session.key, work.began)
        return None if talks else session

    async def _round(self, work: Work, session: Tended, wanted: Wanted) -> Commit | None:
        def told(prompt: Prompt) -> None:
            work.alone = prompt.alone
            if prompt.alone and self._is_anyone_busy():
                raise _StepAside

        commit = await run_round(self._means, session, wanted=wanted, aim=work.aim, told=told)
        if commit is not None:
            self._unread = commit.note if "; it said: " in commit.note else None
        if commit is not None and commit.id and self._on_commit is not None:
            self._on_commit(commit)
        return commit

    async def _tend(self, work: Work) -> bool:
        async with self._slots:
            try:
                session = await self._fresh(work)
                if session is None:
                    return False
                for _ in range(_MOST_ROUNDS):
                    if session is None or await self._round(work, session, "all") is None:
                        break
                    session = await self._fresh(work)
            except _StepAside:
                return False
            except Exception as error:  # noqa: BLE001 - the supervisor: it is tried again later
                await self._failed(work, error)
            else:
                self._faults.clear(work.id)
                self._tended += 1
            return True

    async def _fold_soon(self, work: Work) -> None:
        try:
            await self._fresh(work)
            for _ in range(_LOOKS):
                if work.lane is None or not self._is_busy(work.lane):
                    break
                await asyncio.sleep(_PAUSE)  # the turn that asked for it is about to end
            async with self._slots:
                await self._fold(work, "fold")
        except Exception as error:  # noqa: BLE001 - the supervisor: it is tried again later
            await self._failed(work, error)

    async def _fold(self, work: Work, wanted: Wanted) -> tuple[Commit | None, bool]:
        """The last commit, and whether nothing is left to fold."""
        found: Commit | None = None
        for _ in range(_MOST_ROUNDS):
            session = await self._fresh(work)
            if session is None:
                return found, work.seen is None
            try:
                commit = await self._round(work, session, wanted)
            except _StepAside:
                return found, False
            if commit is None:
                await self._fresh(work)
                return found, work.seen is not None and work.seen.seen == session.seen
            found = commit
            self._faults.clear(work.id)
        return found, True

    async def _failed(self, work: Work, error: Exception) -> None:
        until = self._faults.add(work.id, _sentence(error))
        if isinstance(error, ParleyError):
            _log.warning("memory_not_tended", extra={"session": work.id, "why": str(error)})
        else:
            _log.exception("memory_not_tended", extra={"session": work.id})
        if work.seen is not None:
            with suppress(ParleyError):  # without it, it is tried again at the next look
                await self._sessions.put_off(work.id, work.seen.seen, until)


class _StepAside(Exception):
    """Somebody is answered just now by the model that would be asked, which does one at a time."""


def _id_of(session: Tended | str) -> str:
    return session if isinstance(session, str) else session.id


def _sentence(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _sentence(error.exceptions[0])
    if isinstance(error, ParleyError):
        return str(error)
    return f"Something went wrong in the program itself ({type(error).__name__}); see the log."
