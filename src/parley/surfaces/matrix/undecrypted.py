"""Messages that cannot be decrypted: their keys are asked for, and people are told what to do.

Which ones they are is kept as marks, so that a restart neither forgets them nor tells twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from parley.surfaces.matrix.connection import Connection, MatrixFault, part
from parley.surfaces.matrix.incoming import AGENT_KEY
from parley.surfaces.matrix.key_requests import ask_for_key
from parley.surfaces.matrix.receiving import has_key, is_sealed, open_event
from parley.surfaces.matrix.room_names import Marks
from parley.surfaces.matrix.syncing import Batch

__all__ = ["Found", "Unread", "notice_of"]

_log = logging.getLogger("parley.matrix")

_MARK: Final = "matrix:unread:"
_MOST: Final = 500
_RETRY: Final = 30.0
_SENTENCE: Final = (
    "I cannot read this message: its key was not shared with me. Please send it again; if that "
    "does not help, verify my session in your client, or turn off “never send encrypted messages "
    "to unverified sessions” there."
)


@dataclass(slots=True)
class _Sealed:
    room_id: str
    sender: str
    at: float
    session_id: str
    told: float | None = None
    event: Mapping[str, Any] | None = None
    """As it came; fetched again after a restart."""

    def to_mark(self) -> str:
        record = {"room": self.room_id, "sender": self.sender, "at": self.at}
        return json.dumps({**record, "session": self.session_id, "told": self.told})


@dataclass(frozen=True, slots=True)
class Found:
    """What a batch means for messages that could not be read.

    `events` can be read now, and are to be admitted; `marks` belong into the same transaction.
    """

    events: Sequence[tuple[str, dict[str, Any]]] = ()
    marks: Mapping[str, str | None] = field(default_factory=dict)
    fresh: Mapping[str, _Sealed] = field(default_factory=dict)


class Unread:
    """`start` once; for each batch `take` it, and say `kept` when its marks are kept.

    `may_speak` says of a sender, and `may_tell` of a room, whether we have to do with them.
    """

    def __init__(
        self,
        connection: Connection,
        door: Marks,
        *,
        may_speak: Callable[[str], bool] = lambda _sender: True,
        may_tell: Callable[[str], bool] = lambda _room_id: True,
        notice_after: float = 20.0,
        again_after: float = 600.0,
        forget_after: float = 24 * 3600.0,
    ) -> None:
        self._connection = connection
        self._door = door
        self._may_speak = may_speak
        self._may_tell = may_tell
        self._notice_after = notice_after
        self._again_after = again_after
        self._forget_after = forget_after
        self._sealed: dict[str, _Sealed] = {}
        self._told: dict[tuple[str, str], float] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Take up what an earlier run left."""
        for name, text in (await self._door.marks(_MARK)).items():
            try:
                kept = json.loads(text)
                told = kept["told"]
                sealed = _Sealed(
                    room_id=str(kept["room"]),
                    sender=str(kept["sender"]),
                    at=float(kept["at"]),
                    session_id=str(kept["session"]),
                    told=None if told is None else float(told),
                )
            except (ValueError, KeyError, TypeError):
                await self._door.put_marks({name: None})
                continue
            self._sealed[name.removeprefix(_MARK)] = sealed
            if sealed.told:
                self._note_told(sealed, sealed.told)
        self._begin(self._watch())

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── batches ──

    async def take(self, batch: Batch) -> Found:
        """The same batch taken again gives the same."""
        fresh = {
            str(event["event_id"]): _read(room_id, event)
            for room_id, event in batch.unread
            if event.get("sender") != self._connection.user_id
            and self._may_speak(str(event.get("sender")))
            and isinstance(event.get("event_id"), str)
        }
        fresh = {name: each for name, each in fresh.items() if name not in self._sealed}
        marks: dict[str, str | None] = {
            _MARK + name: each.to_mark() for name, each in fresh.items()
        }
        opened = await self._reopen() if batch.keys_arrived or batch.first else []
        gone = {str(event["event_id"]) for _, event in opened}
        gone |= {_redacted(event) for _, event in batch.events} & self._sealed.keys()
        gone |= set(list(self._sealed)[: len(self._sealed) + len(fresh) - _MOST])
        marks |= dict.fromkeys((_MARK + name for name in gone), None)
        return Found(opened, marks, fresh)

    def kept(self, found: Found) -> None:
        """What was found is durable now."""
        for name, text in found.marks.items():
            if text is None:
                self._sealed.pop(name.removeprefix(_MARK), None)
        self._sealed.update(found.fresh)
        asked = {(each.room_id, each.session_id): each for each in found.fresh.values()}
        for each in asked.values():
            if each.event is not None:
                self._begin(ask_for_key(self._connection, each.room_id, each.event))
        self._changed.set()

    async def _reopen(self) -> list[tuple[str, dict[str, Any]]]:
        nio, opened = self._connection.nio, list[tuple[str, dict[str, Any]]]()
        for event_id, sealed in list(self._sealed.items()):
            if not has_key(nio, sealed.room_id, sealed.session_id):
                continue
            event = sealed.event or await self._fetch(event_id, sealed)
            if event is None:
                continue
            sealed.event = event
            shown = open_event(nio, sealed.room_id, event)
            if not is_sealed(shown):
                opened.append((sealed.room_id, shown))
        return opened

    async def _fetch(self, event_id: str, sealed: _Sealed) -> Mapping[str, Any] | None:
        path = f"/v3/rooms/{part(sealed.room_id)}/event/{part(event_id)}"
        try:
            return await self._connection.call("GET", path)
        except MatrixFault as fault:
            _log.debug("unread_not_fetched", extra={"reason": str(fault)})
            return None

    # ── telling ──

    async def _watch(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._look_through(time.time())
            except Exception as error:  # noqa: BLE001 - the supervisor: it is done a little later
                _log.warning("unread_not_told", extra={"reason": type(error).__name__})
            try:
                async with asyncio.timeout(self._next_in(time.time())):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _look_through(self, now: float) -> None:
        for event_id, sealed in list(self._sealed.items()):
            if now >= sealed.at + self._forget_after:
                await self._write(event_id, None)
            elif sealed.told is None and now >= sealed.at + self._notice_after:
                await self._tell(event_id, sealed)

    def _next_in(self, now: float) -> float | None:
        """How long there is nothing to do; None when only a batch brings something."""
        due = [
            each.at + (self._notice_after if each.told is None else self._forget_after)
            for each in self._sealed.values()
        ]
        if not due:
            return None
        return min(due) - now if min(due) > now else min(_RETRY, self._notice_after)

    async def _tell(self, event_id: str, sealed: _Sealed) -> None:
        """One notice for each message, and none soon after another to the same person."""
        lately = self._told.get((sealed.room_id, sealed.sender), 0.0)
        silent = time.time() - lately < self._again_after
        if not silent and self._may_tell(sealed.room_id):
            content = notice_of(event_id, sealed.sender, sealed.event)
            txn = "unread-" + hashlib.sha256(event_id.encode()).hexdigest()[:32]
            try:
                await self._connection.send(sealed.room_id, "m.room.message", content, txn)
            except MatrixFault as fault:
                _log.warning("unread_not_told", extra={"reason": str(fault)})
                if fault.is_passing:
                    return
        sealed.told = time.time()
        if not silent:
            self._note_told(sealed, sealed.told)
        if self._sealed.get(event_id) is sealed:
            await self._write(event_id, sealed)

    def _note_told(self, sealed: _Sealed, at: float) -> None:
        key = (sealed.room_id, sealed.sender)
        self._told[key] = max(at, self._told.get(key, 0.0))

    async def _write(self, event_id: str, sealed: _Sealed | None) -> None:
        if sealed is None:
            self._sealed.pop(event_id, None)
        await self._door.put_marks({_MARK + event_id: sealed.to_mark() if sealed else None})

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def notice_of(event_id: str, sender: str, event: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a person is told who wrote something that we cannot read: a reply to it."""
    relation: dict[str, Any] = {"m.in_reply_to": {"event_id": event_id}}
    theirs = (event or {}).get("content", {}).get("m.relates_to")
    if isinstance(theirs, Mapping) and theirs.get("rel_type") == "m.thread":
        relation |= {"rel_type": "m.thread", "event_id": theirs.get("event_id")}
    return {
        "msgtype": "m.notice",
        "body": _SENTENCE,
        "m.mentions": {"user_ids": [sender]},
        "m.relates_to": relation,
        AGENT_KEY: True,
    }


def _read(room_id: str, event: Mapping[str, Any]) -> _Sealed:
    session = event["content"].get("session_id")
    return _Sealed(
        room_id=room_id,
        sender=str(event.get("sender")),
        at=time.time(),
        session_id=session if isinstance(session, str) else "",
        event=event,
    )


def _redacted(event: Mapping[str, Any]) -> str:
    if event.get("type") != "m.room.redaction":
        return ""
    content = event.get("content")
    told = content.get("redacts", "") if isinstance(content, Mapping) else ""
    return str(event.get("redacts") or told)
