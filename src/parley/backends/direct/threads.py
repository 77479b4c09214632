"""The threads of a remote agent that are held open, or are to be opened again because it still
works for them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from parley.backends.base import Mailbox
from parley.backends.direct.events import Callback
from parley.backends.direct.faults import PlatformError
from parley.backends.direct.frames import CALLBACKS, CLOSE_LEAVING
from parley.backends.direct.keys import parse_thread_key
from parley.backends.direct.line import Line
from parley.protocol import ParleyError

__all__ = ["Lease", "Patience", "Threads", "Wanted"]

_log = logging.getLogger("parley.direct")

_MOST_AT_ONCE: Final = 8
_MOST_POSTED: Final = 1000
_LIVED_SECONDS: Final = 30.0
_GIVEN_UP: Final = (
    "The agent was still working on something for this conversation. After an update it has a new "
    "thread there, so that result will not arrive; please ask for it again."
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what is held: idle lines, and the pauses between attempts to come back.

    An agent that goes in the midst of an answer is waited for, for `return_seconds`.
    """

    idle_seconds: float = 60.0
    most_idle: int = 100
    first_pause: float = 1.0
    longest_pause: float = 300.0
    heartbeat_seconds: float = 20.0
    return_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which thread, for which conversation of ours; without `later` no callback can be told."""

    thread: str
    lane: str
    session: str
    later: bool = True
    hops: int = 1


@dataclass(frozen=True, slots=True)
class Lease:
    """A line for one message. `is_reused`: it was open before, and may be found dead."""

    line: Line
    is_reused: bool


class Dial(Protocol):
    def __call__(
        self, wanted: Wanted, take: Callable[[Callback], Awaitable[None]] | None
    ) -> Awaitable[Line]: ...


class Deliver(Protocol):
    def __call__(self, wanted: Wanted, callback: Callback) -> Awaitable[None]:
        """Have a callback told in its conversation; on return it is durable."""


@dataclass(slots=True)
class _Thread:
    wanted: Wanted
    pending: int = 0
    line: Line | None = None
    idle: asyncio.TimerHandle | None = None
    coming_back: asyncio.Task[None] | None = None
    attempts: int = 0
    kept: str | None = None
    posted: OrderedDict[str, None] = field(default_factory=OrderedDict)


class Threads:
    """One line for each thread at most, apart from those that a second message needs meanwhile.

    `prefix` begins the names under which is kept, over a restart, what is still worked for; all of
    it is in threads of `profile`.
    """

    def __init__(
        self, dial: Dial, deliver: Deliver, *, prefix: str, profile: str, patience: Patience
    ) -> None:
        self._dial = dial
        self._deliver = deliver
        self._prefix = prefix
        self._profile = profile
        self._patience = patience
        self._mailbox: Mailbox | None = None
        self._threads: dict[str, _Thread] = {}
        self._gate = asyncio.Semaphore(_MOST_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._recalling: asyncio.Task[None] | None = None

    @property
    def open_lines(self) -> int:
        return sum(thread.line is not None for thread in self._threads.values())

    def start(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._recalling = self._spawn(self._recall(mailbox))

    async def close(self) -> None:
        if self._recalling is not None:
            self._recalling.cancel()
        threads, self._threads = self._threads, {}
        for thread in threads.values():
            self._hold(thread)
            if thread.coming_back is not None:
                thread.coming_back.cancel()
            if thread.line is not None:
                thread.line.on_lost = None
                self._spawn(thread.line.close(CLOSE_LEAVING))
        while self._tasks:
            await asyncio.wait(self._tasks)

    # ── for a message ──

    async def take(self, wanted: Wanted) -> Lease:
        """A line to `wanted`, an open one where there is one; raises `PlatformError`."""
        thread = self._threads.get(wanted.thread)
        if thread is not None and (line := _usable(thread, wanted)) is not None:
            self._hold(thread)
            thread.wanted = wanted
            line.take()
            return Lease(line, is_reused=True)
        if thread is not None and thread.coming_back is not None:
            thread.coming_back.cancel()
            thread.coming_back = None
        try:
            line = await self._dial(wanted, self._taker(wanted))
        except BaseException:
            if thread is not None:
                self._come_back(thread)
            raise
        if line.is_lasting and wanted.later:
            thread = self._threads.setdefault(wanted.thread, _Thread(wanted))
            if thread.line is None:
                self._attach(thread, line)
        return Lease(line, is_reused=False)

    async def give_back(self, wanted: Wanted, line: Line, *, pending: int) -> None:
        """The answer is complete; what is still worked for is kept before this returns."""
        thread = self._threads.get(wanted.thread)
        if thread is not None and thread.line is line:
            thread.wanted = wanted
            line.rest()
        else:
            self.drop(line)  # it was for one message, or it is gone already
        if CALLBACKS in line.known:
            thread = self._threads.setdefault(wanted.thread, _Thread(wanted))
            await self._note(thread, pending)
            self._come_back(thread)
        elif thread is not None:
            self._wait_idle(thread)

    def drop(self, line: Line, code: int = 1000) -> None:
        """Close a line, without waiting for the other end."""
        for thread in self._threads.values():
            if thread.line is line:
                self._lose(thread)
                break
        self._spawn(line.close(code))

    # ── what is held ──

    def _hold(self, thread: _Thread) -> None:
        if thread.idle is not None:
            thread.idle.cancel()
            thread.idle = None

    def _attach(self, thread: _Thread, line: Line) -> None:
        thread.line = line
        line.on_lost = self.drop

    def _wait_idle(self, thread: _Thread) -> None:
        """Close it after a while, unless it is wanted again or something is worked on."""
        self._hold(thread)
        line = thread.line
        if line is None or line.is_busy or thread.pending:
            return
        # The newest is the last, so that the first idle one is the one that was used least lately.
        self._threads[thread.wanted.thread] = self._threads.pop(thread.wanted.thread, thread)
        loop = asyncio.get_running_loop()
        thread.idle = loop.call_later(self._patience.idle_seconds, self.drop, line)
        idle = [each.line for each in self._threads.values() if each.idle is not None and each.line]
        for old in idle[: max(0, len(idle) - self._patience.most_idle)]:
            self.drop(old)

    def _lose(self, thread: _Thread) -> None:
        self._hold(thread)
        line, thread.line = thread.line, None
        if line is not None:
            line.on_lost = None
            lived = asyncio.get_running_loop().time() - line.began
            thread.attempts = 0 if lived > _LIVED_SECONDS else thread.attempts + 1
        self._come_back(thread)

    # ── what is worked for ──

    async def _note(self, thread: _Thread, pending: int) -> None:
        """How much is still worked for; on return that is durable."""
        thread.pending = pending
        wanted = thread.wanted
        place = {"lane": wanted.lane, "session": wanted.session, "hops": wanted.hops}
        value = json.dumps(place) if pending else None
        if self._mailbox is not None and value != thread.kept:
            await self._mailbox.keep(self._prefix + wanted.thread, value)
            thread.kept = value
        self._wait_idle(thread)

    async def _recall(self, mailbox: Mailbox) -> None:
        kept = await mailbox.kept(self._prefix)
        for name, value in kept.items():
            key = name.removeprefix(self._prefix)
            wanted = _read(key, value)
            if wanted is None or not self._is_ours(key):
                await self._give_up(mailbox, name, wanted)
            elif key not in self._threads:
                thread = self._threads[key] = _Thread(wanted, pending=1, kept=value)
                self._come_back(thread)

    def _is_ours(self, key: str) -> bool:
        try:
            return parse_thread_key(key).profile == self._profile
        except ValueError:
            return False

    async def _give_up(self, mailbox: Mailbox, name: str, wanted: Wanted | None) -> None:
        """Forget a thread that is not to be opened, and say so where its result was promised.

        Before thread keys held the profile, those of a named profile were the default profile's
        too: what comes by one may be for another profile.
        """
        if wanted is not None:
            id = hashlib.sha256(name.encode(errors="replace")).hexdigest()
            await mailbox.post(wanted.lane, f"direct:given-up:{id}", _GIVEN_UP, session=None)
            _log.warning("thread_given_up", extra={"lane": wanted.lane})
        await mailbox.keep(name, None)

    def _come_back(self, thread: _Thread) -> None:
        key = thread.wanted.thread
        if self._threads.get(key) is not thread:
            return
        if thread.line is not None:
            return
        if not thread.pending:
            del self._threads[key]
        elif thread.coming_back is None:
            thread.coming_back = self._spawn(self._reconnect(thread))

    async def _reconnect(self, thread: _Thread) -> None:
        """Try until a line is open again; each pause is longer than the one before."""
        while True:
            await asyncio.sleep(self._pause(thread.attempts))
            thread.attempts += 1
            try:
                async with self._gate:
                    line = await self._dial(thread.wanted, self._taker(thread.wanted))
                break
            except ParleyError as error:
                # The sentence is for a person who waits; here nobody does.
                code = error.code if isinstance(error, PlatformError) else "no secret"
                _log.info("agent_not_reached", extra={"code": code, "attempt": thread.attempts})
        thread.coming_back = None
        if CALLBACKS not in line.known or not line.is_lasting:
            # Another agent answers there now: what was pending is not known to it.
            self._spawn(line.close())
            await self._note(thread, 0)
            self._come_back(thread)
            return
        self._attach(thread, line)
        line.rest()
        await self._note(thread, thread.pending if line.pending is None else line.pending)

    def _pause(self, attempt: int) -> float:
        """With jitter, so that not all come back at the same instant."""
        patience = self._patience
        longest = min(patience.longest_pause, patience.first_pause * 2.0 ** min(attempt - 1, 30))
        return longest * (0.5 + random.random() / 2)  # noqa: S311 - no secret

    def _taker(self, wanted: Wanted) -> Callable[[Callback], Awaitable[None]] | None:
        if self._mailbox is None or not wanted.later:
            return None

        async def take(callback: Callback) -> None:
            thread = self._threads.setdefault(wanted.thread, _Thread(wanted))
            if callback.id in thread.posted:
                return
            await self._deliver(thread.wanted, callback)
            thread.posted[callback.id] = None
            if len(thread.posted) > _MOST_POSTED:
                thread.posted.popitem(last=False)
            left = callback.pending
            await self._note(thread, max(0, thread.pending - 1) if left is None else left)

        return take

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("background_failed", exc_info=task.exception())


def _usable(thread: _Thread, wanted: Wanted) -> Line | None:
    line = thread.line
    if line is None or line.is_busy or not line.is_open or not wanted.later:
        return None
    return line if thread.wanted.hops == wanted.hops else None


def _read(key: str, value: str) -> Wanted | None:
    try:
        said = json.loads(value)
        return Wanted(key, str(said["lane"]), str(said["session"]), hops=int(said["hops"]))
    except (ValueError, KeyError, TypeError):
        return None
