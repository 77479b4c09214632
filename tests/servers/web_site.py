"""A web site on loopback: every path answers as it is told to, and every request is kept."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, TypeAlias

from aiohttp import web

__all__ = ["Handler", "WebSite", "raw_site"]

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class WebSite:
    """`async with WebSite() as site`; `site.has("/path", "<p>…")`, then `site.url("/path")`."""

    def __init__(self, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = 0
        self.requests: list[web.BaseRequest] = []
        self._tls = tls
        self._handlers: dict[str, Handler] = {}
        self._runner: web.ServerRunner | None = None

    @property
    def place(self) -> str:
        """As `web.allow` names it."""
        return f"{self.host}:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def url(self, path: str = "/", *, host: str | None = None) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{host or self.host}:{self.port}{path}"

    def has(
        self,
        path: str,
        body: str | bytes,
        *,
        status: int = 200,
        type: str = "text/html; charset=utf-8",
        **headers: str,
    ) -> str:
        """This is at the path from now on; `_` in a header's name is `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["Content-Type"] = type
        content = body.encode() if isinstance(body, str) else body

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=status, body=content, headers=named)

        return self.does(path, answer)

    def redirects(self, path: str, to: str, *, status: int = 302) -> str:
        return self.has(path, "elsewhere", status=status, Location=to)

    def does(self, path: str, handler: Handler) -> str:
        self._handlers[path] = handler
        return self.url(path)

    async def __aenter__(self) -> Self:
        server = web.Server(self._answer, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, 0, ssl_context=self._tls).start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        handler = self._handlers.get(request.path)
        return await handler(request) if handler else web.Response(status=404, text="not here")


@asynccontextmanager
async def raw_site(answer: bytes) -> AsyncIterator[str]:
    """The URL of a server that says these very bytes, whatever it is asked."""

    async def say(incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
        await incoming.readuntil(b"\r\n\r\n")
        outgoing.write(answer)
        await outgoing.drain()
        outgoing.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
