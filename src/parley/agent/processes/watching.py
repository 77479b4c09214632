"""Watching one process until it is over, and what it prints meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from parley.agent.processes.folder import ProcessFolder, lives, reap
from parley.agent.processes.patterns import LineWatch
from parley.agent.processes.process import Matched, Process

__all__ = ["Entry", "watch"]

_LOOK_SECONDS = 0.5


@dataclass(slots=True)
class Entry:
    """A process that the registry knows; `pid` is its keeper's, when that may still live.

    A keeper that we started is our child, and its number means no other until we reap it.
    """

    folder: ProcessFolder
    process: Process
    patterns: tuple[str, ...] = ()
    pid: int | None = None
    is_child: bool = False
    typed: str | None = ""
    """What stands on the line that was typed last; None where that is not known."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if not self.process.is_running:
            self.over.set()

    @property
    def id(self) -> str:
        return self.process.id


async def watch(entry: Entry, on_match: Callable[[Matched], None]) -> tuple[str, ...]:
    """Until its keeper is gone; then the process says how it ended.

    Returns the lines that matched and were not reported.
    """
    lines = await _begin_lines(entry)
    pid = entry.pid
    while pid is not None:
        async with _gone(entry, pid) as gone:
            while not gone.done():
                await asyncio.wait([gone], timeout=_LOOK_SECONDS if lines else None)
                if lines is not None:
                    await _look(entry, lines, on_match)
        await asyncio.to_thread(reap, pid)
        # A keeper of an earlier gateway may have been faster than the one that we started.
        pid = await asyncio.to_thread(entry.folder.keeper_pid)
    if lines is not None:
        await _feed(entry, lines, last=True)
    entry.process = await asyncio.to_thread(entry.folder.process)
    return tuple(lines.found) if lines is not None and not lines.is_over else ()


async def _begin_lines(entry: Entry) -> LineWatch | None:
    if not entry.patterns:
        return None
    position, reports = await asyncio.to_thread(entry.folder.watched)
    return LineWatch(entry.patterns, position=position, reports=reports)


async def _look(entry: Entry, lines: LineWatch, on_match: Callable[[Matched], None]) -> None:
    if lines.is_over:
        return
    await _feed(entry, lines)
    taken = lines.take(time.monotonic())
    if taken is not None:
        found, more = taken
        on_match(Matched(entry.process, tuple(found), lines.reports, more, lines.is_over))
        await asyncio.to_thread(entry.folder.put_watched, lines.position, lines.reports)


async def _feed(entry: Entry, lines: LineWatch, *, last: bool = False) -> None:
    await asyncio.to_thread(_read_on, entry, lines, last=last)


def _read_on(entry: Entry, lines: LineWatch, *, last: bool) -> None:
    piece = entry.folder.printed(since=lines.position)
    lines.feed(piece.start if piece.data else lines.position, piece.data, last=last)


@contextlib.asynccontextmanager
async def _gone(entry: Entry, pid: int) -> AsyncIterator[asyncio.Future[None]]:
    """Done when the keeper is: told by the kernel where it can, else by looking again."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    handle = await asyncio.to_thread(_handle, entry, pid)

    def note() -> None:
        if not gone.done():
            gone.set_result(None)

    if handle is None:
        poll = asyncio.create_task(_poll(entry, pid, note))
        try:
            yield gone
        finally:
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
        return
    loop.add_reader(handle, note)
    try:
        yield gone
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _handle(entry: Entry, pid: int) -> int | None:
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
    if _lives(entry, pid):  # this very keeper, now that the handle is bound to it
        return handle
    os.close(handle)
    return None


def _lives(entry: Entry, pid: int) -> bool:
    if entry.is_child and pid == entry.pid:
        return lives(pid, None)
    return entry.folder.keeper_pid() == pid


async def _poll(entry: Entry, pid: int, note: Callable[[], None]) -> None:
    while await asyncio.to_thread(_lives, entry, pid):  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(_LOOK_SECONDS)
    note()
