"""A server at an address. Answers are read in bounds, and only plain ones are taken."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from parley.agent.mcp.limits import McpLimits
from parley.agent.mcp.plan import Plan
from parley.agent.mcp.signals import Ended, Meter, Signals
from parley.agent.mcp.wire import spare_tools

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream

__all__ = ["open_http"]

_CONNECT_SECONDS: Final = 10.0
_FAREWELL: Final = {"connect": 1.0, "read": 1.0, "write": 1.0, "pool": 1.0}

Message: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = "tuple[ReadStream[Message], WriteStream[SessionMessage]]"


@contextlib.asynccontextmanager
async def open_http(plan: Plan, signals: Signals, limits: McpLimits) -> AsyncIterator[Streams]:
    """Speak to the address; whoever speaks for a long time is waited for by the caller."""
    client = httpx2.AsyncClient(
        headers={**plan.headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
        transport=_Bounded(signals, limits),
        trust_env=False,
    )
    async with (
        client,
        streamable_http_client(
            plan.url, http_client=client, max_sse_event_size=limits.message_bytes
        ) as (read, write),
    ):
        yield _Metered(read, signals, Meter(limits)), write


class _Bounded(httpx2.AsyncHTTPTransport):
    """Refuses an answer that is too large, or that would unpack to something larger."""

    def __init__(self, signals: Signals, limits: McpLimits) -> None:
        super().__init__(retries=0)
        self._signals = signals
        self._largest = limits.message_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            request.extensions["timeout"] = _FAREWELL
        response = await super().handle_async_request(request)
        if response.status_code >= 400:
            self._signals.refused = response.status_code
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is compressed", request=request)
        kind = response.headers.get("content-type", "").lower()
        if not kind.startswith("text/event-stream") and isinstance(
            response.stream, httpx2.AsyncByteStream
        ):
            response.stream = _Counted(response.stream, self._largest)
        return response


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, largest: int) -> None:
        self._stream = stream
        self._left = largest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.RemoteProtocolError("the answer is too large")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Metered:
    """What comes in, counted; its end is the end of the connection."""

    def __init__(self, inner: ReadStream[Message], signals: Signals, meter: Meter) -> None:
        self._inner = inner
        self._signals = signals
        self._meter = meter

    async def receive(self) -> Message:
        return await self.__anext__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            item = await self._inner.__anext__()
            self._meter.count(0)
        except Ended as error:
            self._signals.end(str(error))
            raise StopAsyncIteration from error
        except StopAsyncIteration:
            self._signals.end("The connection was closed.")
            raise
        if isinstance(item, SessionMessage):
            spare_tools(item.message, self._signals)
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)
