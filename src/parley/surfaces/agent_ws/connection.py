"""One connection of a thread: what the client says, and what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from parley.backends.direct import frames
from parley.gateway.intake import Stopping
from parley.protocol import ParleyError
from parley.storage.contract import Delivery
from parley.surfaces.agent_ws.answer import error_frame
from parley.surfaces.agent_ws.asking import Asking, Shared, error_of
from parley.surfaces.agent_ws.callback import callback_frame, callback_id
from parley.surfaces.agent_ws.thread import AgentThread
from parley.surfaces.agent_ws.wire import (
    ApprovalAnswer,
    BadFrame,
    CallbackReceived,
    Cancel,
    Frame,
    Hello,
    UserMessage,
    read_frame,
)
from parley.surfaces.api.errors import ClientGone
from parley.surfaces.api.wire.encode import encode
from parley.surfaces.base import NotSent, Unreachable

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Connection"]

_log = logging.getLogger("parley.direct")

_LARGE: Final = 256 * 1024
_CHECKED_EVERY: Final = 1.0
_CONFIRMED_WITHIN: Final = 20.0
_GOODBYE_WITHIN: Final = 1.0
_GOES_AWAY: Final = frozenset({1001, 1012})
"""Closed with one of these, the client itself ends or starts anew: it will be back."""


class Connection:
    """`serve` until the client leaves, or is sent away."""

    def __init__(
        self, socket: web.WebSocketResponse, thread: AgentThread, shared: Shared, *, hops: int
    ) -> None:
        self._thread = thread
        self._socket = socket
        self._shared = shared
        self._asking = Asking(thread, shared, send=self.send, knows=self.knows, hops=hops)
        self._known: frozenset[str] = frozenset()
        self._confirmed: dict[str, asyncio.Future[None]] = {}
        self._checked_at = 0.0
        self._leaving = False
        self._reading: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    def knows(self, capability: str) -> bool:
        """Whether the client said so."""
        return capability in self._known

    async def serve(self) -> None:
        await self.send(
            {
                "type": "STATUS",
                "protocol": 1,
                "profile": self._thread.profile,
                "capabilities": list(frames.CAPABILITIES),
                "pending": await self._asking.door.owed(self._asking.lane),
            }
        )
        answering = asyncio.create_task(self._answer_all(), name="direct-answers")
        self._reading = asyncio.create_task(self._read_all(), name="direct-frames")
        try:
            await asyncio.wait({self._reading})
        finally:
            for confirmed in self._confirmed.values():
                confirmed.cancel()
            for task in (answering, self._reading):
                task.cancel()
            await asyncio.gather(answering, self._reading, return_exceptions=True)
            if self._closing is not None:
                await self._closing

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Raises `ClientGone`."""
        from aiohttp import WSMsgType

        now = asyncio.get_running_loop().time()
        if now >= self._checked_at + _CHECKED_EVERY:
            self._checked_at = now
            await self._check_key()
        try:
            await self._socket.send_frame(encode(frame), WSMsgType.TEXT)
        except (ConnectionError, RuntimeError) as error:
            raise ClientGone("The client has closed its connection.") from error

    async def _check_key(self) -> None:
        """Raises `ClientGone` when the key was revoked meanwhile, or has expired."""
        if not self._thread.caller.still():
            await self._close(frames.CLOSE_NOT_ALLOWED, "This key does not count any more.")
            raise ClientGone("The key of this client does not count any more.")

    async def say_goodbye(self) -> None:
        """The gateway ends."""
        if self._leaving:
            return
        self._leaving = True
        with contextlib.suppress(ClientGone, TimeoutError):
            async with asyncio.timeout(_GOODBYE_WITHIN):
                await self.send({"type": "GRACEFUL_DISCONNECT"})
                await self._close(1001, "The gateway ends.")

    async def refuse(self, code: int, frame: Mapping[str, Any]) -> None:
        """Say what is wrong, and close."""
        with contextlib.suppress(ClientGone):
            await self.send(frame)
            await self._close(code, str(frame["code"]))

    async def call_back(self, delivery: Delivery, pending: int) -> str:
        """Say something outside of any answer; raises unless the client confirms it."""
        id = callback_id(delivery)
        confirmed = self._confirmed[id] = asyncio.get_running_loop().create_future()
        takes_files = self.knows(frames.ATTACHMENTS)
        try:
            frame = await callback_frame(delivery, id, pending=pending, takes_files=takes_files)
            await self.send(frame)
            done, _ = await asyncio.wait({confirmed}, timeout=_CONFIRMED_WITHIN)
        except ClientGone as gone:
            raise Unreachable(str(gone)) from gone
        finally:
            self._confirmed.pop(id, None)
        if not done:
            raise NotSent("The client did not confirm it in time.")
        if confirmed.cancelled():
            raise Unreachable("The client left before it confirmed it.")
        return id

    # ── what the client says ──

    async def _read_all(self) -> None:
        from aiohttp import WSMsgType

        while True:
            message = await self._socket.receive()
            match message.type:
                case WSMsgType.TEXT:
                    if not await self._hear(message.data):
                        return
                case WSMsgType.BINARY:
                    await self._refuse_frame("Send frames as text, not as bytes.")
                    return
                case WSMsgType.CLOSE:
                    if message.data not in _GOES_AWAY:
                        self._asking.give_up()
                    return
                case _:
                    return

    async def _hear(self, text: str) -> bool:
        """Whether the client may go on."""
        try:
            await self._check_key()  # before anything is done for it
            await self._take(await _read(text), len(text))
        except BadFrame as error:
            await self._refuse_frame(error.message)
            return False
        except Stopping:
            await self.say_goodbye()
            return False
        except ClientGone:
            return False
        except ParleyError as error:
            await self.send(error_of(error))
        return True

    async def _take(self, frame: Frame, size: int) -> None:
        match frame:
            case Hello(capabilities=told):
                self._known = frozenset(told) & frozenset(frames.CAPABILITIES)
                if self.knows(frames.CALLBACKS):
                    await self._shared.door.back(self._thread.source)
            case UserMessage(id=id):
                if not self._asking.put(frame, size):
                    details = "Too many messages wait here; let some be answered first."
                    await self.send(error_frame("BUSY", details, id=id))
            case Cancel(id=id):
                await self._asking.cancel(id)
            case ApprovalAnswer(id=id, allowed=allowed):
                await self._decide(id, allowed)
            case CallbackReceived(id=id):
                confirmed = self._confirmed.get(id)
                if confirmed is not None and not confirmed.done():
                    confirmed.set_result(None)

    async def _decide(self, id: str, allowed: bool) -> None:
        asking, by = self._asking, self._thread.source
        found = await asking.door.decide(asking.lane, approval=id, allowed=allowed, by=by)
        if found.refused:
            # It goes on waiting: an owner may answer it, wherever they speak.
            _log.info("approval_refused", extra={"why": found.refused})

    async def _answer_all(self) -> None:
        try:
            await self._asking.answer_all()
        except ClientGone:
            return
        except Stopping:
            await self.say_goodbye()

    async def _refuse_frame(self, details: str) -> None:
        await self.refuse(frames.CLOSE_BAD_FRAME, error_frame("BAD_FRAME", details))

    async def _close(self, code: int, why: str) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close_well(code, why), name="direct-close")
        await asyncio.shield(self._closing)

    async def _close_well(self, code: int, why: str) -> None:
        # While somebody reads, aiohttp would not wait for the client to close its end.
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await self._socket.close(code=code, message=why.encode())


async def _read(text: str) -> Frame:
    return read_frame(text) if len(text) < _LARGE else await asyncio.to_thread(read_frame, text)
