"""A response that is a stream of events (SSE), and the box in which a turn's events wait for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

from parley.protocol import ReasoningDelta, TextDelta
from parley.surfaces.api.errors import ClientGone

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.http import StreamWriter

__all__ = ["EventStream", "Mailbox"]

T = TypeVar("T")

_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}


_CHECKED_EVERY: Final = 1.0
_MUCH: Final = 32 * 1024


class EventStream:
    """Events to one client, as fast as it reads them.

    While nothing is sent, a comment now and then keeps the connection from being taken for dead.
    """

    def __init__(
        self,
        request: web.Request,
        *,
        headers: Mapping[str, str] | None = None,
        keepalive_seconds: float = 15.0,
        stalled_seconds: float = 30.0,
        allowed: Callable[[], bool] | None = None,
    ) -> None:
        """`allowed` is asked now and then whether the client may still be told anything."""
        from aiohttp import web

        self._request = request
        self._allowed = allowed
        self._keepalive = keepalive_seconds
        self._stalled = stalled_seconds
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._comment: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None
        self._held = b""
        self._checked_at = self._sent_at
        self.response = web.StreamResponse(headers={**(headers or {}), **_HEADERS})

    async def __aenter__(self) -> Self:
        try:
            await self.response.prepare(self._request)
        except ConnectionError as error:
            raise _gone() from error
        self._timer = self._loop.call_later(self._keepalive, self._keep_alive)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await _over(self._comment)
        try:
            if error is None:
                await self._end()
        finally:
            await _over(self._draining)

    def hold(
        self, data: str | bytes, event: str | None = None, id: str | int | None = None
    ) -> None:
        """One event that goes with the next, or with the end: each write costs as much as many."""
        self._held += _encode(data, event, id)

    async def flush(self) -> None:
        """Send what is held now."""
        await self._write(b"")

    async def send(
        self, data: str | bytes, event: str | None = None, id: str | int | None = None
    ) -> None:
        """One event. Comes back when there is room for more; raises `ClientGone`."""
        await self._write(_encode(data, event, id))

    async def comment(self, text: str = "") -> None:
        """A line that every reader passes over."""
        await self._write(f": {' '.join(text.splitlines())}\n\n".encode())

    def _check(self) -> None:
        """Cut the stream of a client that may no longer read it."""
        now = self._loop.time()
        if self._allowed is None or now < self._checked_at + _CHECKED_EVERY:
            return
        self._checked_at = now
        if not self._allowed():
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ClientGone("The client may not read this any more.")

    async def _write(self, wire: bytes) -> None:
        self._check()
        wire, self._held = self._held + wire, b""
        outstanding = self._unsent + len(wire)
        try:
            # Never suspends: how long to wait for the client is decided here, not in aiohttp.
            await self._writer.write(wire, drain=False)
        except ConnectionError as error:
            raise _gone() from error
        self._sent_at = self._loop.time()
        if self._request.protocol.writing_paused:
            await self._drained(outstanding)
            self._sent_at = self._loop.time()

    async def _drained(self, outstanding: int) -> None:
        """Wait for room, for as long as the client reads at all."""
        if self._draining is None or self._draining.done():
            # A task, for aiohttp's drain is broken for good once a wait for it was cancelled.
            self._draining = self._loop.create_task(self._writer.drain())
        while not (await asyncio.wait({self._draining}, timeout=self._stalled))[0]:
            left = self._unsent
            if left >= outstanding:
                raise ClientGone("The client has stopped reading.")
            outstanding = left
        if self._draining.exception() is not None or self._request.transport is None:
            raise _gone()

    @property
    def _writer(self) -> StreamWriter:
        return cast("StreamWriter", self._request.writer)

    @property
    def _unsent(self) -> int:
        transport = self._request.transport
        return transport.get_write_buffer_size() if transport is not None else 0

    async def _end(self) -> None:
        if len(self._held) > _MUCH:
            await self.flush()  # which waits for as long as the client reads
        try:
            async with asyncio.timeout(self._stalled):
                await self.response.write_eof(self._held)
        except TimeoutError:
            raise ClientGone("The client has stopped reading.") from None
        except ConnectionError as error:
            raise _gone() from error

    def _keep_alive(self) -> None:
        """The one timer. What is sent only notes when: the timer looks at that as it comes due."""
        due = self._sent_at + self._keepalive
        if due <= self._loop.time():
            if self._unsent == 0 and (self._comment is None or self._comment.done()):
                self._comment = self._loop.create_task(self._say_alive())
            due = self._loop.time() + self._keepalive
        self._timer = self._loop.call_at(due, self._keep_alive)

    async def _say_alive(self) -> None:
        try:
            await self.comment("keep-alive")
        except ClientGone:
            # Whoever sends next is told; whoever waits is cancelled with the connection.
            return


async def _over(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _encode(data: str | bytes, event: str | None, id: str | int | None) -> bytes:
    if isinstance(data, str):
        data = data.encode()
    head = b""
    if event is not None:
        head += f"event: {_one_line(event)}\n".encode()
    if id is not None:
        head += f"id: {_one_line(str(id))}\n".encode()
    if b"\n" in data or b"\r" in data:
        # Every line end that a reader knows: `\r` alone is one, too.
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        data = b"\ndata: ".join(lines)
    return b"%bdata: %b\n\n" % (head, data)


def _one_line(text: str) -> str:
    if any(char in text for char in "\r\n\0"):
        raise ValueError("The name and the id of an event are one line each.")
    return text


def _gone() -> ClientGone:
    return ClientGone("The client has closed its connection.")


class _Run:
    """Text that runs together while it waits."""

    __slots__ = ("kind", "length", "pieces")

    def __init__(self, kind: type[TextDelta | ReasoningDelta], text: str) -> None:
        self.kind = kind
        self.pieces = [text]
        self.length = len(text)

    def add(self, text: str, upto: int) -> None:
        self.pieces.append(text)
        self.length += len(text)
        if self.length >= upto:
            self.pieces = ["".join(self.pieces)]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Mailbox(Generic[T]):
    """The events of one turn, for a writer that may be slow. Who puts them in never waits.

    Once `runs_after` events wait, text that follows text runs together, in runs of some
    `run_length` characters: what a slow reader costs is the reply's own length, and little more.
    """

    def __init__(self, *, runs_after: int = 256, run_length: int = 16 * 1024) -> None:
        self._waiting: deque[T | _Run] = deque()
        self._runs_after = runs_after
        self._run_length = run_length
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: T) -> None:
        """After `close` nothing more is taken."""
        if self._closed:
            return
        if len(self._waiting) < self._runs_after or not isinstance(
            event, TextDelta | ReasoningDelta
        ):
            self._waiting.append(event)
        else:
            self._run_on(event)
        self._changed.set()

    def _run_on(self, event: TextDelta | ReasoningDelta) -> None:
        last: Any = self._waiting[-1]
        goes_on = isinstance(last, _Run) and last.kind is type(event)
        if goes_on and last.length < self._run_length:
            last.add(event.text, self._run_length)
        else:
            self._waiting.append(_Run(type(event), event.text))

    def close(self) -> None:
        """What waits may still be taken out."""
        self._closed = True
        self._changed.set()

    async def get(self) -> T | None:
        """The oldest event; None when there is none and none will come."""
        while not self._waiting:
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._opened(self._waiting.popleft())

    def _opened(self, event: T | _Run) -> T:
        if isinstance(event, _Run):
            text: Any = event.kind(event.text)
            made: T = text
            return made
        return event

    async def __aiter__(self) -> AsyncIterator[T]:
        while (event := await self.get()) is not None:
            yield event
