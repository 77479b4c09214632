"""One open connection to a remote agent: what it says as events, with its silence and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from parley.agent.providers.http import encode
from parley.backends.direct.events import (
    AgentEvent,
    BadFrame,
    Callback,
    Chunk,
    End,
    ErrorSaid,
    FileSent,
    Goodbye,
    Question,
    Status,
    read_event,
)
from parley.backends.direct.faults import FarAgent, PlatformError
from parley.backends.direct.frames import CALLBACKS, IDS

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Line"]

_log = logging.getLogger("parley.direct")

_GOODBYE_SECONDS: Final = 0.5
_LARGE: Final = 256 * 1024
_MOST_UNREAD: Final = 64 * 1024 * 1024
_MOST_CALLBACKS: Final = 4
"""So many wait to be kept; the agent waits with the others."""

TakeCallback: TypeAlias = Callable[[Callback], Awaitable[None]]


class Line:
    """Read from its first moment to its last, also while nobody waits for an answer.

    `is_busy` while it is somebody's. Until an answer has ended, events are theirs, by `next`; then
    only callbacks are expected. `known` is what both ends know beyond plain text.
    """

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        far: FarAgent,
        *,
        silence: float | None,
        on_gone: Callable[[], Awaitable[None]],
    ) -> None:
        self.is_busy = True
        self._is_answering = True
        self.theirs: frozenset[str] = frozenset()
        self.known: frozenset[str] = frozenset()
        self.pending: int | None = None
        self.on_lost: Callable[[Line], None] | None = None
        self.began = asyncio.get_running_loop().time()
        self._socket = socket
        self._far = far
        self._silence = silence
        self._on_gone = on_gone
        self._events: asyncio.Queue[tuple[AgentEvent | PlatformError, int]] = asyncio.Queue()
        self._unread = 0
        self._callbacks: asyncio.Queue[Callback] = asyncio.Queue(_MOST_CALLBACKS)
        self._take_callback: TakeCallback | None = None
        self._worker: asyncio.Task[None] | None = None
        self._is_over = False
        self._fault: PlatformError | None = None
        self._closing: asyncio.Task[None] | None = None
        self._reader = asyncio.create_task(self._read())

    @property
    def is_open(self) -> bool:
        return not self._is_over and self._closing is None

    @property
    def is_lasting(self) -> bool:
        """Whether it is of use for more than one message."""
        return IDS in self.known

    async def greet(self) -> None:
        """Wait for the agent's `STATUS`."""
        status = await self.next()
        if not isinstance(status, Status):
            raise self._far.broken("did not begin with STATUS")
        self.theirs, self.pending = status.capabilities, status.pending

    async def tell(self, known: frozenset[str], *, take: TakeCallback | None) -> None:
        """Say what we know as well; `take` is called with each callback, one after the other."""
        self.known = self.theirs & known
        if CALLBACKS in self.known:
            self._take_callback = take
            self._worker = asyncio.create_task(self._take_callbacks())
        if self.theirs:
            await self.send({"type": "HELLO", "capabilities": sorted(known)})

    async def send(self, frame: Mapping[str, Any]) -> None:
        await self.send_text(encode(frame).decode())

    async def send_text(self, text: str) -> None:
        import aiohttp

        if not self.is_open:
            raise self._fault or self._far.closed(None)
        try:
            await self._socket.send_str(text)
        except (aiohttp.ClientError, OSError) as error:
            raise self._far.closed(None) from error

    async def next(self, *, is_excused: Callable[[], bool] = lambda: False) -> AgentEvent:
        """What the agent says next. `is_excused`: it is somebody else who is waited for."""
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    event, size = await self._events.get()
                break
            except TimeoutError:
                if not is_excused():
                    raise self._far.silent(self._silence or 0) from None
        self._unread -= size
        match event:
            case PlatformError():
                raise event
            case ErrorSaid(code=code, details=details):
                raise self._far.error(code, details)
            case Goodbye():
                raise self._far.goodbye()
            case _:
                return event

    def take(self) -> None:
        """Somebody is about to say something, and waits for the answer."""
        self.is_busy = self._is_answering = True

    def rest(self) -> None:
        """Nobody waits any more: what comes now is said by the agent unasked."""
        self.is_busy = self._is_answering = False

    async def close(self, code: int = 1000) -> None:
        """Close it at once; a second call waits for the first."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(code))
        await asyncio.shield(self._closing)

    async def _close(self, code: int) -> None:
        try:
            # Whoever talks on and on is not listened to until the end.
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await self._socket.close(code=code)
            for task in filter(None, (self._reader, self._worker)):
                task.cancel()
                await asyncio.wait({task})
        finally:
            await self._on_gone()

    # ── reading ──

    async def _read(self) -> None:
        try:
            while True:
                event, size = await self._receive()
                if isinstance(event, Callback):
                    if self._worker is None:
                        raise self._far.broken("sent CALLBACK to a peer that does not know it")
                    await self._callbacks.put(event)
                elif self._is_answering:
                    # What comes after the end must not get into the next answer.
                    self._is_answering = not isinstance(event, End | ErrorSaid)
                    self._unread += size
                    if self._unread > _MOST_UNREAD:
                        raise self._far.broken("sent more than any answer can be")
                    self._events.put_nowait((event, size))
                else:
                    await self._take_unasked(event)
        except PlatformError as error:
            self._fault = error
            self._events.put_nowait((error, 0))
        self._give_up()

    async def _receive(self) -> tuple[AgentEvent, int]:
        import aiohttp

        message = await self._socket.receive()
        match message.type:
            case aiohttp.WSMsgType.TEXT:
                text = message.data
            case aiohttp.WSMsgType.BINARY:
                raise self._far.broken("sent binary data")
            case aiohttp.WSMsgType.CLOSE:
                raise self._far.closed(message.data)
            case aiohttp.WSMsgType.ERROR:
                raise self._broken_off(message.data)
            case _:
                raise self._far.closed(None)
        try:
            if len(text) < _LARGE:
                return read_event(text), len(text)
            return await asyncio.to_thread(read_event, text), len(text)
        except BadFrame as error:
            raise self._far.broken(str(error)) from None

    def _broken_off(self, error: object) -> PlatformError:
        import aiohttp

        if isinstance(error, aiohttp.ServerTimeoutError):
            return self._far.dead()
        if isinstance(error, aiohttp.WebSocketError):
            return self._far.broken("sent a message that is too large, or no text")
        return self._far.closed(None)

    async def _take_unasked(self, event: AgentEvent) -> None:
        match event:
            case Goodbye():
                raise self._far.goodbye()
            case Question(id=name):  # there is nobody to ask
                await self.send({"type": "APPROVAL_ANSWER", "id": name, "allowed": False})
            case Chunk() | End() | FileSent() | ErrorSaid() | Status():
                raise self._far.broken("said something that nobody had asked for")
            case _:
                return

    async def _take_callbacks(self) -> None:
        while True:
            callback = await self._callbacks.get()
            if self._take_callback is None:
                continue
            try:
                await self._take_callback(callback)
                await self.send({"type": "CALLBACK_RECEIVED", "id": callback.id})
            except PlatformError:
                self._give_up()  # the line is gone; on the next one it is said again
                return
            except Exception:  # noqa: BLE001 - supervisor: on a new line it is said again
                _log.exception("callback_not_taken", extra={"agent": self._far.shown})
                self._give_up()
                return

    def _give_up(self) -> None:
        self._is_over = True
        if self.on_lost is not None and self._closing is None:
            self.on_lost(self)
