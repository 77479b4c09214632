"""Replies that are seen while they are made: a message per running turn, edited as it grows.

The first send has the name of the turn's reply itself, so that whatever a process that was killed
has left in the room becomes the reply, and no second message is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any, Final

from parley.gateway.live import LiveEvent, TurnEnded, TurnStarted
from parley.surfaces.matrix.connection import Connection, MatrixFault, part
from parley.surfaces.matrix.content import (
    MESSAGE,
    Spot,
    edit_of,
    fitting,
    message,
    spot_of,
    transaction,
)
from parley.surfaces.matrix.pace import Pace
from parley.surfaces.matrix.progress import Progress
from parley.surfaces.text.markup import rendered

__all__ = ["Preview", "Previews", "redact"]

_log = logging.getLogger("parley.matrix")

_AT_ONCE: Final = 0.15
_SOON: Final = 0.3
_BYTES_PER_INTERVAL: Final = 2_000
_AFTER_A_FAULT: Final = 5.0
_LOOK_AGAIN: Final = 1.0
_REMEMBERED: Final = 2_000
_TRIES_TO_STOP: Final = 6


@dataclass(frozen=True, slots=True)
class Preview:
    """What is known of a turn's message when its reply is to be sent.

    `event_id` is the message; without one, `known` says that there is surely none. `gone`: someone
    has deleted it, and edits of it are seen by nobody.
    """

    event_id: str | None
    known: bool
    room_id: str | None = None
    gone: bool = False


@dataclass(slots=True, eq=False)
class _Running:
    """A turn whose words are shown."""

    spot: Spot
    name: str
    """Its transaction."""
    fresh: bool
    """No earlier process has shown anything of it."""
    progress: Progress = field(default_factory=Progress)
    event_id: str | None = None
    unsure: bool = False
    """A first send got no answer: it may be there."""
    shown: str = ""
    edits: int = 0
    nonce: str = field(default_factory=lambda: secrets.token_hex(6))
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: bool = False
    taken: bool = False
    gone: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def preview(self) -> Preview:
        known = self.fresh and not self.unsure
        return Preview(self.event_id, known, self.spot.room_id, self.gone)

    def end(self) -> None:
        self.over.set()
        self.stirred.set()


class Previews:
    """Each turn has a task of its own, which sends the newest of what there is when it may."""

    def __init__(
        self, connection: Connection, *, edit_seconds: float, pace: Pace | None = None
    ) -> None:
        self.pace = pace or Pace()
        self._connection = connection
        self._edit_seconds = edit_seconds
        self._running: dict[str, _Running] = {}
        """By the transaction of their reply: profiles that share an account count alike."""
        self._ended: OrderedDict[str, Preview | None] = OrderedDict()
        """Turns that are over; None once their preview was taken."""
        self._next_edit: dict[str, float] = {}

    def show(self, event: LiveEvent, *, room_id: str) -> None:
        """Take an event in; returns at once."""
        name = transaction(event.session, f"turn:{event.turn}", "0")
        running = self._running.get(name)
        if running is None:
            if isinstance(event.event, TurnEnded) or not self._may_begin(name, event):
                return
            spot = spot_of(event.source, room_id=room_id, answers=event.answers)
            running = self._begin(name, event, spot)
        if isinstance(event.event, TurnEnded):
            running.stopped = event.event.stopped and not event.event.goes_on
            running.end()
        elif running.progress.take(event.event):
            running.stirred.set()

    async def take(self, name: str) -> Preview | None:
        """What became of a turn's preview, for its reply that is to be sent now.

        `name` is the transaction of the reply. When this returns nothing more is sent of the
        preview, even if events of the turn come late. None when nothing is known of the turn here.
        """
        running = self._running.get(name)
        if running is None:
            found = self._ended.get(name)
            self._remember(name, None)
            return found
        running.taken = True
        running.end()
        if running.task is not None:
            await asyncio.wait({running.task})
        return running.preview

    def deleted(self, event_id: str) -> None:
        """Someone has deleted a message of ours: if a turn was seen in it, it is not any more."""
        for running in self._running.values():
            running.gone = running.gone or running.event_id == event_id
        for name, ended in self._ended.items():
            if ended is not None and ended.event_id == event_id:
                self._ended[name] = replace(ended, gone=True)

    async def close(self) -> None:
        tasks = [each.task for each in self._running.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _may_begin(self, name: str, event: LiveEvent) -> bool:
        """A turn that was stopped may begin again; one whose reply was sent is over for good."""
        if name not in self._ended:
            return True
        return self._ended[name] is not None and isinstance(event.event, TurnStarted)

    def _begin(self, name: str, event: LiveEvent, spot: Spot) -> _Running:
        before = self._ended.pop(name, None)
        fresh = isinstance(event.event, TurnStarted) and not event.event.resumed
        running = _Running(spot, name, fresh)
        if before is not None and before.room_id == spot.room_id:
            running.event_id, running.gone = before.event_id, before.gone
        self._running[name] = running
        running.task = asyncio.create_task(self._follow(running), name=f"preview-{event.turn}")
        return running

    async def _follow(self, running: _Running) -> None:
        """The supervisor of one turn's preview: what breaks here breaks nothing else."""
        try:
            try:
                await self._show_until_over(running)
                if running.stopped and not running.taken:
                    await self._show_stopped(running)
            except MatrixFault as fault:
                _log.info("preview_given_up", extra={"reply": running.name, "why": str(fault)})
            except Exception:  # noqa: BLE001 - the supervisor
                _log.exception("preview_broke_off", extra={"reply": running.name})
            await running.over.wait()
        finally:
            del self._running[running.name]
            self._remember(running.name, None if running.taken else running.preview)
            room_id = running.spot.room_id
            if not any(each.spot.room_id == room_id for each in self._running.values()):
                self._next_edit.pop(room_id, None)

    def _remember(self, name: str, preview: Preview | None) -> None:
        self._ended[name] = preview
        self._ended.move_to_end(name)
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    # ── one turn ──

    async def _show_until_over(self, running: _Running) -> None:
        await running.stirred.wait()
        until = asyncio.get_running_loop().time() + _SOON
        # A reply that is whole by then needs no preview: it would only have to wait for it.
        if await _over_within(running, _AT_ONCE):
            return
        while not (running.over.is_set() or running.progress.has_a_sentence):
            running.stirred.clear()
            try:
                async with asyncio.timeout_at(until):
                    await running.stirred.wait()
            except TimeoutError:
                break
        while not running.over.is_set():
            running.stirred.clear()
            shown = running.progress.shown()
            if shown and shown != running.shown:
                if await self._its_time(running, len(shown)):
                    await self._send_newest(running)
            else:
                await running.stirred.wait()

    async def _its_time(self, running: _Running, size: int) -> bool:
        """Wait for this room's next edit and for a place in the account's queue.

        The longer a text, the rarer it is sent, for each edit sends all of it.
        """
        room_id, now = running.spot.room_id, time.monotonic()
        interval = self._edit_seconds * (1 + size / _BYTES_PER_INTERVAL)
        at = now if running.event_id is None else max(now, self._next_edit.get(room_id, now))
        self._next_edit[room_id] = at + interval
        if await _over_within(running, at - now):
            return False
        ticket = self.pace.reserve()
        while pause := self.pace.wait_for(ticket):
            if await _over_within(running, min(pause, _LOOK_AGAIN)):
                self.pace.give_back()
                return False
        return not running.over.is_set()

    async def _send_newest(self, running: _Running) -> None:
        text = running.progress.shown()
        if not text:  # withdrawn while it waited
            return
        if running.gone:
            running.shown = text
            return
        is_edit = running.event_id is not None
        begun = time.monotonic()
        try:
            await self._say(running, text)
        except MatrixFault as fault:
            if fault.status == 429:
                self.pace.limited(fault.after)
            elif fault.is_passing:
                await _over_within(running, _AFTER_A_FAULT)
            else:
                raise
        else:
            self.pace.worked(time.monotonic() - begun)
            # The first send of a resumed turn may have found the message of an earlier process.
            running.shown = text if is_edit or running.fresh else ""

    async def _say(self, running: _Running, text: str) -> None:
        content = message(text, await rendered(text), running.spot)
        if running.event_id is not None:
            running.edits += 1
            name = f"{running.name}.{running.nonce}.{running.edits}"
            await self._put(running, edit_of(running.event_id, content), name)
            return
        before, running.unsure = running.unsure, True
        try:
            running.event_id = await self._put(running, content, running.name)
        except MatrixFault as fault:
            if 400 <= fault.status < 500:
                running.unsure = before
            raise
        running.unsure = False

    async def _put(self, running: _Running, content: dict[str, Any], name: str) -> str:
        room_id = running.spot.room_id
        small = fitting(content, encrypted=self._connection.is_encrypted(room_id))
        return await self._connection.send(room_id, MESSAGE, small, name)

    async def _show_stopped(self, running: _Running) -> None:
        """Nobody else will end this message: not given up at the first fault."""
        if running.gone or (running.event_id is None and running.preview.known):
            return
        words = running.progress.stopped()
        for attempt in range(_TRIES_TO_STOP):
            try:
                if running.event_id is None:
                    await self._say(running, words or "— stopped")
                await (self._say(running, words) if words else self._redact(running))
            except MatrixFault as fault:
                if not fault.is_passing:
                    raise
                if fault.status == 429:
                    self.pace.limited(fault.after)
                await asyncio.sleep(fault.after or min(30.0, 2.0**attempt))
            else:
                return

    async def _redact(self, running: _Running) -> None:
        assert running.event_id is not None
        await redact(self._connection, running.spot.room_id, running.event_id, running.name)


async def redact(connection: Connection, room_id: str, event_id: str, name: str) -> None:
    """Take a message of ours back; `name` is the transaction it was sent under."""
    path = f"/v3/rooms/{part(room_id)}/redact/{part(event_id)}/{part(name + '.redact')}"
    await connection.call("PUT", path, {})


async def _over_within(running: _Running, seconds: float) -> bool:
    """Wait so long, or until the turn is over: then True."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await running.over.wait()
    return running.over.is_set()
