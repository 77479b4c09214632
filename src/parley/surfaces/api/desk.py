"""What every route works with: a request is put in here, and its turn's events come out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from parley.gateway.intake import FrontDoor
from parley.gateway.live import LiveEvent, TurnEnded
from parley.gateway.persist import until_stored
from parley.gateway.requests import ProfileDoor
from parley.gateway.routing import NobodyThere
from parley.protocol import InboundMessage
from parley.storage.attachments import clear_old_files
from parley.storage.contract import Receipt, RequestRecord
from parley.surfaces.api.asks import Ask, Asks
from parley.surfaces.api.callers import Caller, Callers
from parley.surfaces.api.conversation_gate import ConversationGate
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.records import Ended, Kind, Records
from parley.surfaces.api.talk import Talk, one_header, talk_of
from parley.surfaces.api.wire.ids import check_idempotency_key

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Desk", "DeskRules"]

T = TypeVar("T")

_LARGE: Final = 32 * 1024
_FILES_KEPT: Final = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class DeskRules:
    """How large a request may be, and how slow."""

    body_bytes: int = 32 * 1024 * 1024
    body_seconds: float = 30.0
    keepalive_seconds: float = 15.0
    stalled_seconds: float = 30.0


class Desk:
    """One for the server. `spawn` runs what must go on when its request is gone."""

    def __init__(
        self,
        door: FrontDoor,
        callers: Callers,
        rules: DeskRules,
        *,
        render: Callable[[Ended], Mapping[str, Any]],
    ) -> None:
        self.door = door
        self.callers = callers
        self.rules = rules
        self.asks = Asks()
        self.conversations = ConversationGate()
        self._render = render
        self._records: dict[str, tuple[ProfileDoor, Records]] = {}
        self._gone_on: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    # ── who and where ──

    def talk(
        self,
        request: web.Request,
        caller: Caller,
        model: str | None,
        *,
        session: str | None = None,
    ) -> Talk:
        """The conversation that the headers name, or `session`; else a new one."""
        return talk_of(request, caller, self.door.to(caller.target(model)), session)

    async def read(self, request: web.Request, read: Callable[[], T]) -> T:
        """Do it, beside the event loop where the request is large: its files are stored too."""
        size = request.content_length
        if size is not None and size < _LARGE:
            return read()
        return await asyncio.to_thread(read)

    def idempotency_key(self, request: web.Request) -> str | None:
        given = one_header(request, ("Idempotency-Key",))
        return None if given is None else check_idempotency_key(given)

    def records(self, door: ProfileDoor) -> Records:
        """The lasting requests of a profile. One that is served anew has new ones."""
        name = door.profile.name
        found = self._records.get(name)
        if found is None or found[0].rows is not door.rows:
            records = Records(door, render=self._render, spawn=self.spawn)
            self._records[name] = found = (door, records)
            self.spawn(records.recover())
        return found[1]

    # ── requests ──

    @asynccontextmanager
    async def put_in(self, talk: Talk, message: InboundMessage) -> AsyncIterator[Ask]:
        """Admit a request and wait beside it. Who leaves before its end gives it up."""
        with self.beside(talk, message) as ask:
            try:
                _taken(await talk.door.admit(message))
                yield ask
            finally:
                if not ask.over:
                    withdraw = partial(talk.door.withdraw, ask.lane, ask.name)
                    self.spawn(until_stored(withdraw))

    @contextmanager
    def beside(self, talk: Talk, message: InboundMessage) -> Iterator[Ask]:
        """Be told of what happens in the turn of a request."""
        lane, name = talk.door.named(message)
        ask = Ask(message.event_id, talk.caller.owner, talk.door, lane, name)
        with self.asks.waiting(ask):
            yield ask

    async def hand_in(
        self, talk: Talk, message: InboundMessage, record: RequestRecord
    ) -> RequestRecord | None:
        """Write a lasting request down and admit it; or the one that is there under its key.

        Both or neither, also when the client leaves meanwhile. Not taken, it was never there.
        """
        return await asyncio.shield(self.spawn(self._hand_in(talk, message, record)))

    async def _hand_in(
        self, talk: Talk, message: InboundMessage, record: RequestRecord
    ) -> RequestRecord | None:
        records = self.records(talk.door)
        known = await records.open(record)
        if known is None:
            try:
                _taken(await talk.door.admit(message))
            except Exception:
                await records.give_up(record)
                raise
        return known

    async def look_up(
        self, caller: Caller, id: str, kind: Kind
    ) -> tuple[Records, RequestRecord] | None:
        """A request of this caller, in whichever of the profiles that its key may use."""
        away: NobodyThere | None = None
        for name in caller.reach:
            try:
                records = self.records(self.door.to(name))
            except NobodyThere as error:
                away = error
                continue
            found = await records.find(id, caller.owner, kind)
            if found is not None:
                return records, found
        if away is not None:  # it may be there, and nobody can look now
            raise away
        return None

    def take(self, event: LiveEvent) -> None:
        """An event of a turn that answers some request."""
        waited_for = self.asks.take(event)
        if waited_for and isinstance(event.event, TurnEnded) and _has_items(event):
            return  # whoever waits writes down the very items that it gives
        if event.lasting:
            self.records(self.door.to(event.source.profile or "")).take(event)

    def go_on(self, response: str) -> bool:
        """Whether nobody else goes on from this response just now; then you do, until `let_go`."""
        is_free = response not in self._gone_on
        self._gone_on.add(response)
        return is_free

    def let_go(self, response: str | None) -> None:
        self._gone_on.discard(response or "")

    # ── life ──

    def open_records(self) -> None:
        """Take up what an earlier process left."""
        for name in self.door.profiles():
            with contextlib.suppress(NobodyThere):  # taken up when it is served
                self.records(self.door.to(name))

    async def prune(self) -> None:
        """Clear away what was kept for long enough."""
        before = time.time() - _FILES_KEPT
        for door, records in tuple(self._records.values()):
            await records.prune()
            await asyncio.to_thread(clear_old_files, door.attachments, before)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name="api-work")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def leave(self) -> None:
        """Let go whoever waits: nothing more comes."""
        self.asks.close()
        for _, records in self._records.values():
            records.leave()

    async def close(self) -> None:
        self.leave()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _has_items(event: LiveEvent) -> bool:
    """Whether the answer has parts with ids of their own, so that it cannot be made twice."""
    return (event.request or "").startswith("resp_")


def _taken(receipt: Receipt) -> None:
    """Raise unless it was."""
    if receipt.state == "rate_limited":
        raise ApiError.rate_limited(receipt.retry_after)
