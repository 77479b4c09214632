"""Lasting requests of one profile: their rows, their logs, and how they end."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

from parley.gateway.live import LiveEvent
from parley.gateway.persist import until_stored
from parley.gateway.requests import ProfileDoor
from parley.protocol import ChatMessage, Failed, InboundMessage, Usage
from parley.protocol import Final as FinalReply
from parley.storage.contract import RequestEvent, RequestRecord, TurnResult
from parley.storage.items import ResponseItems
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.scribe import Line, Scribe
from parley.surfaces.api.wire.response_log import ending_line

__all__ = [
    "BACKGROUND",
    "Ended",
    "Kind",
    "Records",
    "check_same",
    "fingerprint_of",
    "new_record",
    "reply_in",
]

Kind = Literal["run", "response", "chat", "conversation"]

BACKGROUND: Final = "resp_bg_"
"""How the ids of responses in the background begin: what happens in them is logged."""

_DAY: Final = 86_400.0
_KEPT: Final = {"run": 30 * _DAY, "response": 30 * _DAY, "chat": _DAY, "conversation": _DAY}
_PAGE: Final = 200
_ENDED: Final = frozenset({"done", "failed", "stopped"})


@dataclass(frozen=True, slots=True)
class Ended:
    """How the turn of a request ended. `reply` is None when it was stopped."""

    record: RequestRecord
    reply: FinalReply | Failed | None
    usage: Usage | None = None
    turn: int | None = None
    session: str | None = None
    log: tuple[Line, ...] = ()
    """Of a response in the background, with its end."""


def fingerprint_of(route: str, session: str | None, body: Mapping[str, Any]) -> str:
    """The same for the same request, however its JSON was written and its answer is to be sent."""
    same = {name: body[name] for name in body if name not in {"stream", "stream_options"}}
    text = json.dumps([route, session, same], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def check_same(kept: RequestRecord, asked: RequestRecord) -> None:
    """Raise unless what is kept under an idempotency key asked for the same."""
    if kept.fingerprint != asked.fingerprint:
        raise ApiError.conflict(
            "This Idempotency-Key came with another request before; take a new key.",
            param="Idempotency-Key",
            code="idempotency_key_reused",
        )


def new_record(
    message: InboundMessage,
    kind: Kind,
    *,
    owner: str,
    door: ProfileDoor,
    body: Mapping[str, Any],
    key: str | None = None,
    fingerprint: str | None = None,
) -> RequestRecord:
    lane, name = door.named(message)
    now = time.time()
    return RequestRecord(
        id=message.event_id,
        kind=kind,
        owner=owner,
        lane=lane,
        dedupe=name,
        state="queued",
        body=body,
        result=None,
        # Keys of different callers, and of different profiles' rows, are never the same.
        key=None if key is None else f"{owner}/{key}",
        fingerprint=fingerprint,
        expires_at=now + _KEPT[kind],
        created_at=now,
        ended_at=None,
    )


class Records:
    """`render` makes the result that a program is given again, from how a request ended."""

    def __init__(
        self,
        door: ProfileDoor,
        *,
        render: Callable[[Ended], Mapping[str, Any]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._door = door
        self._rows = door.rows
        self._render = render
        self._spawn = spawn
        self._scribes: dict[str, Scribe] = {}
        self._leaving = False

    @property
    def door(self) -> ProfileDoor:
        return self._door

    # ── in ──

    async def open(self, record: RequestRecord) -> RequestRecord | None:
        """Write it down; or the one that is there under its key, when it asked for the same."""
        # Before its row is there: whoever finds a row without a scribe takes it for an old one.
        self._scribe(record.id)
        try:
            kept, is_new = await self._rows.open_request(record)
            if not is_new and self._is_left(kept) and await self.settle(kept.id):
                kept, is_new = await self._rows.open_request(record)
        except BaseException:
            self._drop(record.id)
            raise
        if is_new:
            return None
        self._drop(record.id)
        check_same(kept, record)
        return kept

    async def keep(self, record: RequestRecord, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write down how a request was answered; returns what is written."""
        items = _items_of(record, result)
        if record.key is None:
            body = {name: value for name, value in record.body.items() if name != "input"}
            ended = time.time()
            over = replace(record, state="done", body=body, result=result, ended_at=ended)
            await self._rows.open_request(over, items)
        elif await self._rows.finish_request(record.id, "done", result, (), items) is not None:
            await self._forget(record)
        else:
            before = await self._rows.request(record.id)
            return result if before is None or before.result is None else before.result
        return result

    async def give_up(self, record: RequestRecord) -> None:
        """Its message was not taken: the key is free again."""
        await self._rows.delete_request(record.id)
        await self.settle(record.id)

    def take(self, event: LiveEvent) -> None:
        """An event of a turn. Those of requests that do not last are nobody's here."""
        self._scribe(event.request or "").take(event)

    def note(self, id: str, *lines: Line) -> None:
        """Add to the log of a run that is under way."""
        if (scribe := self._scribes.get(id)) is not None:
            scribe.add(*lines)

    def _scribe(self, id: str) -> Scribe:
        """The one that writes this request down; of one from an earlier process, a new one."""
        found = self._scribes.get(id)
        if found is None:
            found = self._scribes[id] = Scribe(
                id,
                self._rows,
                logs=id.startswith(("run_", BACKGROUND)),
                settle=partial(self.settle, id),
            )
            self._spawn(found.write())
        return found

    def _drop(self, id: str) -> None:
        if (scribe := self._scribes.pop(id, None)) is not None:
            scribe.finish()

    # ── the end ──

    async def settle(self, id: str, ending: FinalReply | Failed | None = None) -> bool:
        """Store how it ended, once it has; whether it is over. `ending` knows why it failed."""
        record = await until_stored(partial(self._rows.request, id))
        if record is not None and record.state not in _ENDED:
            found = await until_stored(partial(self._rows.turn_result, record.dedupe))
            if found is None:
                # Never taken, so nobody was told of it: whoever asks again is answered anew.
                await until_stored(partial(self._rows.delete_request, id))
            elif found.state in {"queued", "running"}:
                return False
            else:
                await self._end(_ended(record, found, ending))
        self._drop(id)
        return True

    async def _end(self, ended: Ended) -> None:
        record, id = ended.record, ended.record.id
        in_background = id.startswith(BACKGROUND)
        stays = record.kind == "run" or in_background
        if not stays and not isinstance(ended.reply, FinalReply):
            # Nobody has got an answer: whoever asks again with the key is answered anew.
            await until_stored(partial(self._rows.delete_request, id))
            return
        state: Literal["done", "failed", "stopped"] = "done"
        last = "run.completed"
        if ended.reply is None:
            state, last = "stopped", "run.cancelled"
        elif isinstance(ended.reply, Failed):
            state, last = "failed", "run.failed"
        lines: list[Line] = []
        if in_background:
            lines = [ending_line(ended.reply, ended.usage)]
            ended = replace(ended, log=(*await self._log(id), *lines))
        result = self._render(ended)
        if record.kind == "run":
            lines = [(last, result)]
        items = _items_of(record, result, done=state == "done")
        await until_stored(partial(self._rows.finish_request, id, state, result, lines, items))
        await self._forget(record)

    async def _log(self, id: str) -> list[Line]:
        log: list[Line] = []
        after = 0
        while page := await until_stored(
            partial(self._rows.request_events, id, after=after, limit=_PAGE)
        ):
            log += [(event.kind, event.data) for event in page]
            after = page[-1].number
        return log

    async def _forget(self, record: RequestRecord) -> None:
        """What was said for a request that is not to be stored; its result stays for a repeat."""
        if not record.body.get("forget"):
            return
        now = await until_stored(partial(self._rows.session_of, record.lane))
        if now is not None:
            forget = partial(self._rows.delete_session, now.id, requests=False)
            await until_stored(forget)

    async def stop(self, record: RequestRecord) -> None:
        """Give the request up, and its turn with it."""
        if await self._rows.mark_request(record.id, "stopping"):
            await self._door.withdraw(record.lane, record.dedupe)
            self._scribe(record.id).end()
            await self.until_over(record.id)

    async def recover(self) -> None:
        """What an earlier process left: ended since, never taken, or to be stopped."""
        for record in await self._rows.open_requests():
            if record.state == "stopping":
                await self.stop(record)
            elif self._is_left(record):
                await self.settle(record.id)

    def _is_left(self, record: RequestRecord) -> bool:
        """Whether an earlier process began it and nothing was heard of it in this one."""
        return record.state not in _ENDED and record.id not in self._scribes

    # ── out ──

    async def find(self, id: str, owner: str, kind: Kind) -> RequestRecord | None:
        """One that is this caller's own."""
        found = await self._rows.request(id)
        mine = found is not None and found.owner == owner and found.kind == kind
        return found if mine else None

    async def delete(self, record: RequestRecord) -> None:
        await self._rows.delete_request(record.id)

    async def until_over(self, id: str) -> RequestRecord | None:
        """Wait for its end; None when it ended without an answer that could be given again."""
        while True:
            scribe = self._scribes.get(id)
            grown = scribe.grown() if scribe is not None else None
            record = await self._rows.request(id)
            if record is None or record.state in _ENDED:
                return record
            if self._leaving:
                raise ApiError.unavailable(
                    "The gateway ends; the answer is there when it is back.", retry_after=1
                )
            if grown is None:
                if await self.settle(id):
                    continue
                grown = self._scribe(id).grown()
            await grown.wait()

    async def events(self, id: str, after: int) -> AsyncIterator[RequestEvent]:
        """The log behind `after`, and what is added to it, until the request is over."""
        while True:
            scribe = self._scribes.get(id)
            grown = scribe.grown() if scribe is not None else None
            record = await self._rows.request(id)  # before the log: what ended has all its lines
            page = await self._rows.request_events(id, after=after, limit=_PAGE)
            for event in page:
                after = event.number
                yield event
            if page:
                continue
            if record is None or record.state in _ENDED or self._leaving:
                return
            if grown is None:
                if await self.settle(id):
                    continue
                grown = self._scribe(id).grown()
            await grown.wait()

    async def last_event(self, id: str) -> int:
        """The number of the newest line in its log; 0 for none."""
        return await self._rows.last_request_event(id)

    def leave(self) -> None:
        """Nobody need wait here any longer: the gateway ends, and the requests go on later."""
        self._leaving = True
        for scribe in tuple(self._scribes.values()):
            scribe.rouse()

    async def prune(self) -> None:
        while await self._rows.prune_requests(time.time()):
            continue


def _items_of(
    record: RequestRecord, result: Mapping[str, Any], *, done: bool = True
) -> ResponseItems | None:
    """What of a response is kept item by item; a conversation has those that were answered."""
    if record.kind != "response":
        return None
    body = record.body
    return ResponseItems(
        record.owner,
        body.get("input", ()),
        result["output"],
        conversation=body.get("conversation") if done else None,
        stored=body["store"],
    )


def _ended(record: RequestRecord, found: TurnResult, ending: FinalReply | Failed | None) -> Ended:
    reply: FinalReply | Failed | None = None
    if found.state not in {"stopped", "dropped"}:
        reply = ending if ending is not None else reply_in(found)
    return Ended(record, reply, found.usage, found.turn, found.session)


def reply_in(found: TurnResult) -> FinalReply | Failed:
    """The end of a turn as its transcript has it."""
    last = next(
        (message for message in reversed(found.messages) if message.role == "assistant"),
        ChatMessage("assistant"),
    )
    if found.state == "failed" or last.note == "failed":
        return Failed(last.text or "The turn failed.")
    return FinalReply(last.text, calls=last.tool_calls, attachments=last.attachments)
