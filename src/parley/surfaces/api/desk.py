"""What every route works with: who calls, which conversation is meant, and a request put in."""

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
from parley.protocol import ChatMessage, InboundMessage, Request, SessionSource
from parley.storage.contract import Receipt, RequestRecord
from parley.surfaces.api.asks import Ask, Asks
from parley.surfaces.api.callers import Caller, Callers
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.records import Ended, Kind, Records
from parley.surfaces.api.wire.content import clear_old_files
from parley.surfaces.api.wire.ids import check_idempotency_key, check_session_id, new_id

if TYPE_CHECKING:
    from aiohttp import web

    from parley.surfaces.api.wire.parsed import ParsedRequest

__all__ = ["Desk", "DeskRules", "Talk"]

T = TypeVar("T")

PLATFORM: Final = "api"
_LARGE: Final = 32 * 1024
_FILES_KEPT: Final = 30 * 86_400.0
_MOST_HOPS: Final = 5
_SESSION_HEADERS: Final = ("X-Parley-Session-Id", "X-Hermes-Session-Id")
_MEMORY_HEADERS: Final = ("X-Parley-Session-Key", "X-Hermes-Session-Key")


@dataclass(frozen=True, slots=True)
class DeskRules:
    """How large a request may be, and how slow."""

    body_bytes: int = 32 * 1024 * 1024
    body_seconds: float = 30.0
    keepalive_seconds: float = 15.0
    stalled_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation with one profile, as a request names it."""

    caller: Caller
    door: ProfileDoor
    session: str
    is_new: bool
    """Its id was made up for this request: nobody can have spoken there before."""
    memory_key: str | None = None
    hops: int = 0
    whole: bool = False
    """Whether what the request tells of the conversation is all of it."""

    @property
    def model(self) -> str:
        """What the answer says who it is from."""
        return self.door.profile.name

    @property
    def named_session(self) -> str | None:
        """Its id, where the program gave one."""
        return None if self.is_new else self.session

    @property
    def headers(self) -> dict[str, str]:
        told = dict.fromkeys(_SESSION_HEADERS, self.session)
        if self.memory_key is not None:
            told |= dict.fromkeys(_MEMORY_HEADERS, self.memory_key)
        return told

    def request(
        self,
        kind: str,
        parsed: ParsedRequest,
        *,
        lasting: bool,
        earlier: tuple[ChatMessage, ...] = (),
        can_ask: bool = False,
    ) -> Request:
        """What is asked for here, under an id of its own that begins with `kind`."""
        return Request(
            id=new_id(kind),
            messages=(*earlier, *parsed.messages),
            instructions=parsed.instructions,
            tools=parsed.tools,
            wishes=parsed.wishes,
            lasting=lasting,
            can_ask=can_ask,
            memory_key=self.memory_key,
            hops=self.hops,
            whole=self.whole,
        )

    def message(self, request: Request, text: str) -> InboundMessage:
        owner = self.caller.owner
        source = SessionSource(PLATFORM, chat_id=f"{owner}/{self.session}", user_id=owner)
        message = InboundMessage(source, text, event_id=request.id, request=request)
        return self.door.bind(message)


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
        door = self.door.to(caller.target(model))
        given = session or _header(request, _SESSION_HEADERS)
        memory = _header(request, _MEMORY_HEADERS)
        return Talk(
            caller,
            door,
            check_session_id(given) if given is not None else new_id("s"),
            is_new=given is None,
            memory_key=None if memory is None else check_session_id(memory, param="session key"),
            hops=_hops(request),
            whole=request.headers.get("X-Parley-History") == "whole",
        )

    async def read(self, request: web.Request, read: Callable[[], T]) -> T:
        """Do it, beside the event loop where the request is large: its files are stored too."""
        size = request.content_length
        if size is not None and size < _LARGE:
            return read()
        return await asyncio.to_thread(read)

    def idempotency_key(self, request: web.Request) -> str | None:
        given = _header(request, ("Idempotency-Key",))
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


def _hops(request: web.Request) -> int:
    """How often it was handed on; raises when that is a ring of gateways."""
    given = request.headers.get("X-Parley-Hops", "0")
    if not (given.isascii() and given.isdecimal() and len(given) < 4) or int(given) > _MOST_HOPS:
        raise ApiError.bad_request(
            "This request was handed on by too many gateways: one leads back to another, so "
            "look at `gateway.proxy_url` of each.",
            code="proxy_loop",
        )
    return int(given)


def _header(request: web.Request, names: tuple[str, ...]) -> str | None:
    given = {value for name in names for value in request.headers.getall(name, ())}
    if len(given) > 1:
        raise ApiError.bad_request(f"{' and '.join(names)} name different things; send one.")
    return next(iter(given), None)
