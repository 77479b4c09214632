"""A client that speaks bytes, for what no decent client would say; and a site to say it to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import pytest
import uvloop
from aiohttp import web

from parley.surfaces.api.edge import EdgeRules, guard_edge
from parley.surfaces.api.site import Site, SiteLimits, open_site
from parley.surfaces.api.tls import CertificateFiles

__all__ = ["Answer", "Raw", "a_site", "both_loops"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(params=["asyncio", "uvloop"])
def both_loops(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """To be a module's `event_loop_policy`: the gateway runs on uvloop where there is one."""
    return (
        uvloop.EventLoopPolicy() if request.param == "uvloop" else asyncio.DefaultEventLoopPolicy()
    )


@asynccontextmanager
async def a_site(
    *routes: tuple[str, str, Handler],
    rules: EdgeRules | None = None,
    limits: SiteLimits | None = None,
    certificate: CertificateFiles | None = None,
) -> AsyncIterator[Site]:
    """The edge and the site around these handlers."""
    app = web.Application()
    guard_edge(app, rules or EdgeRules())
    for method, path, handler in routes:
        if method == "GET":
            app.router.add_get(path, handler)
        else:
            app.router.add_route(method, path, handler)
    site = await open_site(app, "127.0.0.1", 0, limits=limits, certificate=certificate)
    try:
        yield site
    finally:
        await site.close(0.2)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        return self.json["error"]["code"]


class Raw:
    """One connection."""

    def __init__(self, site: Site, *, receive_buffer: int | None = None) -> None:
        self._port = site.port
        self._receive_buffer = receive_buffer

    async def __aenter__(self) -> Self:
        sock = socket.socket()
        if self._receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._port))
        self.reader, self.writer = await asyncio.open_connection(sock=sock, limit=2**16)
        return self

    async def __aexit__(self, *args: object) -> None:
        self.writer.transport.abort()

    async def send(self, wire: bytes) -> None:
        self.writer.write(wire)
        await self.writer.drain()

    async def get(self, path: str = "/", **headers: str) -> Answer:
        return await self.ask("GET", path, **headers)

    async def ask(self, method: str, path: str, body: bytes = b"", /, **headers: str) -> Answer:
        """`Content_Type` is `Content-Type`."""
        given = {"Host": f"127.0.0.1:{self._port}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            given.setdefault("Content-Length", str(len(body)))
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return await self.answer(empty=method == "HEAD")

    async def answer(self, *, empty: bool = False) -> Answer:
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            body = b""
            if not empty and (length := int(headers.get("Content-Length", "0"))):
                body = await self.reader.readexactly(length)
        return Answer(int(first.split()[1]), headers, body)

    async def rest(self, *, seconds: float = 60.0) -> bytes:
        """All that comes until the other side closes; fails when it does not."""
        got = b""
        async with asyncio.timeout(seconds):
            try:
                while piece := await self.reader.read(2**16):
                    got += piece
            except ConnectionError:
                pass
        return got
