"""Lanes: accepted messages become turns, one at a time per session, many sessions side by side."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from parley.gateway.persist import until_stored
from parley.protocol import ChatMessage, InboundMessage, Usage, person_of
from parley.storage.contract import (
    Claim,
    Delivery,
    Draft,
    InboxKind,
    InboxMessage,
    Job,
    LeaseLost,
    Receipt,
    Said,
    SessionRecord,
    Stopped,
    Store,
    TurnEnd,
)
from parley.storage.people import Arrival

__all__ = ["Handler", "Lanes", "RunningTurn"]

_log = logging.getLogger("parley.lanes")

_LONGEST_NAP = 60.0
_GRACE_FOR_STOPPED = 5.0


class RunningTurn:
    """A turn while it runs: its rows, fenced, and what it has said so far."""

    __slots__ = (
        *("_lanes", "_word", "answers", "chosen", "claim", "known", "listens", "messages", "more"),
        *("outside", "request", "said", "trimmed", "usage"),
    )

    def __init__(self, lanes: Lanes, claim: Claim) -> None:
        self._lanes = lanes
        self.claim = claim
        self.messages = claim.messages
        self.answers = _ids_of(claim.messages)
        """The platform's ids of the messages it answers: those it began with, and took in."""
        self.said: list[str] = []
        self.outside: str | None = None
        """Who says it, where that is not the built-in agent."""
        self.usage: Usage | None = None
        self.more = claim.more
        self.listens = False
        """It has asked the person something: what they say next is for it."""
        self.known = asyncio.Event()
        """Whether it listens is known: a turn that is resumed may have asked before."""
        if claim.attempt <= 1:
            self.known.set()
        self._word: asyncio.Event | None = None
        self.chosen: tuple[str | None, str | None] = (None, None)
        """The provider and the model that were chosen for its session."""
        self.trimmed = False
        """Its history did not fit any more."""
        # A request has its turn alone, so it is the first message's or nobody's.
        self.request = claim.messages[0].message.request if claim.messages else None

    @property
    def said_so_far(self) -> Said:
        return Said(self.claim.turn, "".join(self.said), self.outside)

    def add_usage(self, usage: Usage) -> None:
        """One more model call of this turn."""
        before = self.usage
        self.usage = usage if before is None else before + usage

    async def check(self) -> None:
        """Raise `LeaseLost` unless this turn is still the one its lane runs."""
        await self._lanes.store.check(self.claim)

    def expect_more(self) -> None:
        """Something arrived behind it."""
        self.more = True
        if self._word is not None:
            self._word.set()

    def listen(self) -> asyncio.Event:
        """From now on what the person says is for this turn; set whenever something arrives."""
        self.listens = True
        if self._word is None:
            self._word = asyncio.Event()
        return self._word

    async def peek(self) -> int:
        """How many messages arrived behind this turn."""
        return await self._lanes.store.peek(self.claim)

    async def behind(self) -> tuple[InboxMessage, ...]:
        """What arrived behind this turn and can be taken into it."""
        return await self._lanes.store.behind(self.claim)

    @property
    def people(self) -> frozenset[str]:
        """Everyone whose words it answers."""
        return frozenset(person_of(taken.message.source) for taken in self.messages)

    async def absorb(self) -> tuple[InboxMessage, ...]:
        """Take what arrived behind this turn into it."""
        if not self.more:
            return ()
        self.more = False
        taken = await until_stored(lambda: self._lanes.store.absorb(self.claim))
        self.messages += taken
        self.answers += _ids_of(taken)
        return taken

    async def step(self, messages: Sequence[ChatMessage], usage: Usage | None = None) -> None:
        """Journal what just happened."""
        await until_stored(lambda: self._lanes.store.step(self.claim, messages, usage))

    async def commit(self, end: TurnEnd) -> Sequence[Delivery]:
        """End the turn: transcript, replies and the end of its messages in one transaction."""
        if self.more:  # likely so: the claim then shares the commit
            self._lanes.look_again()
        committed = await until_stored(lambda: self._lanes.store.commit(self.claim, end))
        if committed.more:
            self._lanes.look_again()
        return committed.handed


def _ids_of(messages: Sequence[InboxMessage]) -> tuple[str, ...]:
    return tuple([taken.message.event_id for taken in messages])


Handler = Callable[[RunningTurn], Awaitable[None]]


class Lanes:
    """Claims ready lanes for one owner and runs their turns."""

    def __init__(
        self,
        store: Store,
        *,
        owner: str,
        concurrency: int,
        platforms: Sequence[str] = (),
        keeps_time: bool = True,
    ) -> None:
        self.store = store
        self.owner = owner
        self._platforms = tuple(platforms)
        self._of_people = tuple(platforms)
        self._concurrency = concurrency
        self._kept_for_people = concurrency // 10
        self._running: dict[str, tuple[RunningTurn, asyncio.Task[None]]] = {}
        self._ending: dict[str, set[asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._planned = asyncio.Event()
        self._full = False
        self._hurry = asyncio.Event()
        self._draining = asyncio.Event()
        self._keeps_time = keeps_time

    # ── in ──

    async def submit(
        self,
        lane: str,
        dedupe: str,
        message: InboundMessage,
        *,
        kind: InboxKind = "message",
        user: str | None = None,
        not_before: float | None = None,
        fresh_before: float | None = None,
        notice: Callable[[SessionRecord], Draft] | None = None,
    ) -> Receipt:
        """Accept a message; durable on return.

        In a session last used before `fresh_before` it begins a new one, with a `notice`.
        """
        # Woken now, the claim is queued right behind the message and shares its commit.
        self._ready.set()
        self._expect_more(lane)
        receipt = await self.store.submit(
            lane,
            dedupe,
            message,
            kind=kind,
            user=user,
            not_before=not_before,
            fresh_before=fresh_before,
            notice=notice,
        )
        # Once more: the lane's turn may have begun meanwhile.
        self._expect_more(lane)
        if not_before is not None:
            self._planned.set()
        return receipt

    async def submit_all(
        self, arrivals: Sequence[Arrival], marks: Mapping[str, str | None]
    ) -> list[Receipt]:
        """Accept messages, and move the marks with them; durable on return, or nothing is."""
        self._ready.set()
        for arrival in arrivals:
            self._expect_more(arrival.lane)
        receipts = await self.store.submit_all(arrivals, marks)
        for arrival in arrivals:
            self._expect_more(arrival.lane)
        return receipts

    def _expect_more(self, lane: str) -> None:
        if (running := self.turn_of(lane)) is not None:
            running.expect_more()

    async def schedule(self, job: Job) -> None:
        await self.store.schedule(job)
        self._planned.set()

    async def unschedule(self, job_id: str) -> bool:
        return await self.store.unschedule(job_id)

    def attach(self, platform: str, *, for_people: bool = True) -> None:
        """Run the turns of this platform too. Programs leave some room for people."""
        if platform not in self._platforms:
            self._platforms = (*self._platforms, platform)
            if for_people:
                self._of_people = (*self._of_people, platform)
            self._ready.set()

    def look_again(self) -> None:
        """Something may have become ready."""
        self._ready.set()

    # ── running ──

    @property
    def running(self) -> int:
        return len(self._tasks)

    @property
    def is_draining(self) -> bool:
        """Whether turns that are cancelled now are resumed by the next gateway."""
        return self._draining.is_set()

    def turn_of(self, lane: str) -> RunningTurn | None:
        found = self._running.get(lane)
        return found[0] if found else None

    async def serve(self, handler: Handler) -> None:
        """Run turns until cancelled. `drain` first for a gentle end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claim_for_ever(handler), name="lanes")
            if self._keeps_time:
                group.create_task(self._keep_time(), name="lanes-clock")

    async def stop(
        self, lane: str, *, drop_queued: bool = False, turn: int | None = None
    ) -> Stopped:
        """End the lane's running turn, or only that `turn`, and whatever it is doing, now."""
        running = self.turn_of(lane)
        stopped = await self.store.stop(
            lane, drop_queued=drop_queued, said=running.said_so_far if running else None, turn=turn
        )
        if stopped.turn is not None:
            self.cancel(lane, stopped.turn)
        self._ready.set()
        return stopped

    def cancel(self, lane: str, turn: int) -> None:
        """Stop the work of a turn whose rows are already ended."""
        found = self._running.get(lane)
        if found is None or found[0].claim.turn != turn:
            return
        del self._running[lane]
        self._ending.setdefault(lane, set()).add(found[1])
        found[1].cancel()

    async def drain(self, timeout: float) -> int:
        """Start nothing new, let running turns finish, then set them aside to be resumed."""
        self._draining.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._tasks and not self._hurry.is_set():
                    await self._next_end()
        left = tuple(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_GRACE_FOR_STOPPED)
        return len(left)

    def hurry(self) -> None:
        """Wait no longer for running turns."""
        self._hurry.set()

    async def _next_end(self) -> None:
        hurried = asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait({*self._tasks, hurried}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()

    async def _claim_for_ever(self, handler: Handler) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            free = self._concurrency - len(self._tasks)
            if self._draining.is_set():
                continue
            if free <= 0:
                self._full = True
                continue
            # The last places are for people: programs may ask for any number of turns at once.
            is_tight = free <= self._kept_for_people
            limit = free if is_tight else free - self._kept_for_people
            platforms = self._of_people if is_tight else self._platforms
            claims = await until_stored(partial(self.store.claim, self.owner, limit, platforms))
            for claim in claims:
                self._start(claim, handler)
            took_all = len(claims) == limit
            self._full = is_tight or took_all
            if took_all and len(self._tasks) < self._concurrency:
                self._ready.set()

    def _start(self, claim: Claim, handler: Handler) -> None:
        turn = RunningTurn(self, claim)
        task = asyncio.create_task(self._run(turn, handler), name=f"turn-{claim.turn}")
        self._running[claim.lane] = (turn, task)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(turn, done))

    def _ended(self, turn: RunningTurn, task: asyncio.Task[None]) -> None:
        lane = turn.claim.lane
        self._tasks.discard(task)
        # A stale turn never clears what a fresher one registered.
        if (current := self._running.get(lane)) is not None and current[1] is task:
            del self._running[lane]
        if (ending := self._ending.get(lane)) is not None:
            ending.discard(task)
            if not ending:
                del self._ending[lane]
        if self._full:
            self._ready.set()

    async def _run(self, turn: RunningTurn, handler: Handler) -> None:
        """The supervisor of one turn: whatever happens in it stays in it."""
        claim = turn.claim
        if self._draining.is_set():
            await self._set_aside(claim)
            return
        stopped_before = tuple(self._ending.get(claim.lane, ()))
        try:
            if stopped_before:
                await asyncio.wait(stopped_before, timeout=_GRACE_FOR_STOPPED)
            await handler(turn)
        except LeaseLost:
            _log.info("turn_lost", extra={"turn": claim.turn, "lane": claim.lane})
        except asyncio.CancelledError:
            if self._draining.is_set():
                await self._set_aside(claim)
            raise
        except Exception:  # noqa: BLE001 - the supervisor: the turn is tried again, more slowly
            _log.exception("turn_crashed", extra={"turn": claim.turn, "lane": claim.lane})
            try:
                await asyncio.sleep(min(0.05 * 2 ** min(claim.attempt, 10), 30.0))
            finally:
                await self._set_aside(claim)

    async def _set_aside(self, claim: Claim) -> None:
        with contextlib.suppress(LeaseLost):
            await until_stored(lambda: self.store.release(claim))
        self._ready.set()

    async def _keep_time(self) -> None:
        while True:
            self._planned.clear()
            next_at = await until_stored(self.store.tick)
            self._ready.set()
            nap = None if next_at is None else max(0.0, min(next_at - time.time(), _LONGEST_NAP))
            try:
                async with asyncio.timeout(nap):
                    await self._planned.wait()
            except TimeoutError:
                continue
