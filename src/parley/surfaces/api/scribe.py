"""Writes down what the turn of a lasting request does, as it does it.

Who follows a run reads the log, never the turn: so an event that was seen is there for ever, under
the same number, after a restart too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from parley.gateway.live import LiveEvent, TurnEnded, TurnStarted
from parley.gateway.persist import until_stored
from parley.gateway.requests import RequestRows
from parley.protocol import Failed, Final, StepTaken
from parley.surfaces.api.wire.runs import run_event

__all__ = ["Line", "Scribe"]

_PAUSE = 0.04  # between writes of mere text: each write is a flush of the disk
_DELTAS = ("text.delta", "reasoning.delta")

Line = tuple[str, Mapping[str, Any]]


class Scribe:
    """One request's. `settle` is called once its turn is over and all before that is stored."""

    def __init__(
        self,
        id: str,
        rows: RequestRows,
        *,
        logs: bool,
        settle: Callable[[Final | Failed | None], Awaitable[bool]],
    ) -> None:
        self._id = id
        self._rows = rows
        self._logs = logs
        self._settle = settle
        self._lines: list[Line] = []
        self._ended: list[Final | Failed | None] = []
        self._wake = asyncio.Event()
        self._grown = asyncio.Event()
        self._over = False

    def take(self, event: LiveEvent) -> None:
        """Note one event; never waits."""
        if isinstance(event.event, TurnEnded):
            self._ended.append(event.event.ending)
        elif self._logs:
            self.add(*_line(event))
        self._wake.set()

    def add(self, *lines: Line) -> None:
        for kind, data in lines:
            if kind in _DELTAS and self._lines and self._lines[-1][0] == kind:
                text = self._lines[-1][1]["delta"] + data["delta"]
                self._lines[-1] = (kind, {"delta": text})
            else:
                self._lines.append((kind, data))
        self._wake.set()

    def end(self) -> None:
        """The turn was stopped: write what there is, and look how it ended."""
        self._ended.append(None)
        self._wake.set()

    def finish(self) -> None:
        """It is over, and its end is stored."""
        self._over = True
        self._wake.set()
        self._grow()

    def rouse(self) -> None:
        """Whoever waits for more looks again."""
        self._grow()

    def grown(self) -> asyncio.Event:
        """Set when there is more in the log than now, or it is over."""
        return self._grown

    async def write(self) -> None:
        """Until the request is over."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._over:
                return
            lines, self._lines = self._lines, []
            if lines:
                await until_stored(partial(self._rows.add_request_events, self._id, lines))
                self._grow()
            if self._ended and not self._lines:
                # A turn that is only set aside goes on later, here or in the next process.
                ending = next((each for each in self._ended if each is not None), None)
                self._ended.clear()
                await self._settle(ending)
            elif all(kind in _DELTAS for kind, _ in lines):
                await asyncio.sleep(_PAUSE)

    def _grow(self) -> None:
        before, self._grown = self._grown, asyncio.Event()
        before.set()


def _line(live: LiveEvent) -> tuple[Line, ...]:
    """An event as the log has it; those that nobody follows are left out."""
    match live.event:
        case TurnStarted(resumed=True):
            # What the turn said before it was broken off, it says again.
            return ("run.resumed", {}), ("text.reset", {})
        case TurnStarted():
            return (("run.started", {}),)
        case TurnEnded():
            return ()
        case StepTaken(messages=messages) if all(each.role == "tool" for each in messages):
            return ()
        case event:
            line = run_event(event)
            return () if line is None else (line,)
