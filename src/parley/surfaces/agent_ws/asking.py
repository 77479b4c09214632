"""The messages of one connection: each has its turn, and is answered before the next."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from parley.backends.direct import frames
from parley.gateway.failures import error_text
from parley.gateway.intake import FrontDoor, Stopping
from parley.gateway.live import TurnEnded
from parley.gateway.persist import until_stored
from parley.gateway.requests import ProfileDoor
from parley.protocol import Attachment, ChatMessage, Failed, InboundMessage, ParleyError, Request
from parley.storage.contract import Receipt
from parley.surfaces.agent_ws.answer import Answer, Send, error_frame
from parley.surfaces.agent_ws.files import keep_files
from parley.surfaces.agent_ws.follow import Turns
from parley.surfaces.agent_ws.thread import AgentThread
from parley.surfaces.agent_ws.wire import UserMessage
from parley.surfaces.api.asks import Happening, reply_of
from parley.surfaces.api.errors import ApiError, ClientGone
from parley.surfaces.api.records import reply_in
from parley.surfaces.api.stream import Mailbox
from parley.surfaces.api.talk import MOST_HOPS
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.streamed_text import StreamDiverged

if TYPE_CHECKING:
    from parley.surfaces.api.callers import Callers

__all__ = ["Asking", "Shared", "error_of"]

_log = logging.getLogger("parley.direct")

_MOST_WAITING: Final = 8
_STOPPED: Final = Failed("The answer was stopped before it was complete.", kind="stopped")


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections have in common. `spawn` runs what goes on without its connection."""

    door: FrontDoor
    callers: Callers
    turns: Turns
    spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
    most_bytes: int = frames.LARGEST_FRAME


@dataclass(frozen=True, slots=True)
class _Asked:
    """A message that waits."""

    frame: UserMessage
    size: int


class Asking:
    """`put` messages in; `answer_all` tells the client their answers, in order.

    `knows` tells what the client knows, as of now. `hops`: how often what it says was handed on.
    """

    def __init__(
        self,
        thread: AgentThread,
        shared: Shared,
        *,
        send: Send,
        knows: Callable[[str], bool],
        hops: int,
    ) -> None:
        self._thread = thread
        self._shared = shared
        self._send = send
        self._knows = knows
        self._hops = hops
        self._waiting: deque[_Asked] = deque()
        self._arrived = asyncio.Event()
        self._answering: UserMessage | None = None
        self._unwanted: set[str] = set()

    @property
    def door(self) -> ProfileDoor:
        return self._shared.door.to(self._thread.profile)

    @property
    def lane(self) -> str:
        return self._named("")[0]

    def put(self, frame: UserMessage, size: int) -> bool:
        """Whether there is room for one more."""
        held = sum(asked.size for asked in self._waiting) + size
        if len(self._waiting) >= _MOST_WAITING or held > self._shared.most_bytes:
            return False
        self._waiting.append(_Asked(frame, size))
        self._arrived.set()
        return True

    async def cancel(self, id: str) -> None:
        """Nobody wants the answer to this message any more."""
        mine = (self._answering, *(asked.frame for asked in self._waiting))
        if any(frame is not None and frame.id == id for frame in mine):
            self._unwanted.add(id)  # it may not be there yet to be taken back
        await self._withdraw(id)

    def give_up(self) -> None:
        """Nobody wants what is being answered now; one without an id is given up in any case."""
        asked = self._answering
        if asked is not None and asked.id is not None:
            self._unwanted.add(asked.id)
            self._shared.spawn(self._withdraw(asked.id))

    async def answer_all(self) -> None:
        """One after the other; raises `ClientGone`, and `Stopping` when the gateway does."""
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            self._answering = frame = self._waiting.popleft().frame
            try:
                await self._answer(frame)
            except (ClientGone, Stopping):
                raise
            except ParleyError as error:
                await self._send(error_of(error, frame.id))
            except Exception:  # noqa: BLE001 - the supervisor: the connection goes on
                _log.exception("answer_broke_off")
                details = "Something went wrong here; the log tells more."
                await self._send(error_frame("internal", details, id=frame.id))
            finally:
                self._answering = None
                self._unwanted.discard(frame.id or "")

    async def _answer(self, frame: UserMessage) -> None:
        door = self.door
        if not self._thread.caller.still():  # it may have waited for a while
            raise ClientGone("The key of this client does not count any more.")
        self._shared.callers.count(self._thread.caller.key)
        request = await self._request(door, frame)
        message = self._thread.bound(door, request)
        lane, name = door.named(message)
        with self._shared.turns.watch(request.id) as events:
            over = request.lasting
            try:
                if frame.id in self._unwanted:
                    raise _Stopped
                receipt = await self._admitted(door, message)
                if frame.id is not None and frame.id in self._unwanted:
                    await self._withdraw(frame.id)
                answer = Answer(self._send, self._knows, frame.id)
                look = partial(_end_of, door, name)
                ended = await look() if receipt.state == "duplicate" else None
                ended = ended or await self._follow(events, answer, look)
                if ended is None:
                    return
                over = True
                pending = await door.owed(lane) if self._knows(frames.CALLBACKS) else 0
                await answer.end(reply_of(ended), ended.usage, pending=pending)
            finally:
                if not over:
                    withdraw = partial(door.withdraw, lane, name)
                    self._shared.spawn(until_stored(withdraw))

    async def _request(self, door: ProfileDoor, frame: UserMessage) -> Request:
        """What is asked for, its files stored; raises when it cannot be answered."""
        hops = max(self._hops, frame.hops)
        if hops > MOST_HOPS:
            raise ApiError.bad_request(
                "This message was handed on by too many agents: one leads back to another, so look "
                "at AGENT_WS_URL of each.",
                code="agent_loop",
            )
        if not frame.text.strip() and not frame.attachments:
            raise BadRequest("The message is empty: there is nothing to answer.", code="empty")
        files: tuple[Attachment, ...] = ()
        if frame.attachments:
            files = await asyncio.to_thread(keep_files, door.attachments, frame.attachments)
        return Request(
            id=self._thread.request_id(frame.id),
            messages=(
                ChatMessage("user", frame.text, attachments=files, outside=frame.outside or None),
            ),
            instructions=frame.instructions,
            lasting=frame.id is not None,
            can_ask=self._knows(frames.APPROVALS),
            hops=hops,
            later=self._knows(frames.CALLBACKS),
            operator="admin" in self._thread.caller.key.scopes,
        )

    async def _admitted(self, door: ProfileDoor, message: InboundMessage) -> Receipt:
        """One that lasts is taken for good, also when its client leaves just now."""
        if message.request is None or not message.request.lasting:
            receipt = await door.admit(message)
        else:
            receipt = await asyncio.shield(self._shared.spawn(door.admit(message)))
        if receipt.state == "rate_limited":
            raise ApiError.rate_limited(receipt.retry_after)
        return receipt

    async def _follow(
        self,
        events: Mailbox[Happening],
        answer: Answer,
        look: Callable[[], Coroutine[Any, Any, TurnEnded | None]],
    ) -> TurnEnded | None:
        """Tell what happens until the turn has ended; None when nothing more will be known."""
        while True:
            event: Happening | None = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(frames.WORKING_SECONDS):
                    event = await events.get()
                    if event is None:
                        return None
            if event is None:
                await answer.working()
            elif not isinstance(event, TurnEnded):
                await answer.take(event)
            elif event.ending is not None:
                return event
            elif (found := await look()) is not None:  # else it is only set aside, and goes on
                return found

    async def _withdraw(self, id: str) -> None:
        lane, name = self._named(id)
        await until_stored(partial(self.door.withdraw, lane, name))
        self._shared.turns.rouse(self._thread.request_id(id))

    def _named(self, id: str) -> tuple[str, str]:
        """The lane of the message with this id, and its name there."""
        return self.door.named(InboundMessage(self._thread.source, "", self._thread.request_id(id)))


class _Stopped(ParleyError):
    """It was given up before it began."""

    def __init__(self) -> None:
        super().__init__(_STOPPED.sentence)


async def _end_of(door: ProfileDoor, name: str) -> TurnEnded | None:
    """How the turn of a message ended, from what is stored; None when it has not."""
    found = await door.rows.turn_result(name)
    if found is None or found.state in {"stopped", "dropped"}:
        return TurnEnded(ending=_STOPPED)
    if found.state in {"queued", "running"}:
        return None
    return TurnEnded(ending=reply_in(found), usage=found.usage)


def error_of(error: ParleyError, id: str | None = None) -> dict[str, Any]:
    """What a client is told when its message is not answered."""
    code = "unavailable"
    if isinstance(error, ApiError | BadRequest):
        code = error.code or "bad_message"
    elif isinstance(error, _Stopped):
        code = _STOPPED.kind
    elif isinstance(error, StreamDiverged):
        code = error.failed.kind
    return error_frame(code, error_text(error, operator=False), id=id)
