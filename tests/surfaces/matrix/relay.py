"""What lies between an agent and its homeserver: it may be cut, and joined again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.servers.ports import when_free

__all__ = ["Relay"]


class Relay:
    """Passes on what comes to `url`. While it is cut nobody is there: connections are refused."""

    def __init__(self, url: str) -> None:
        there = urlsplit(url)
        self._there = (there.hostname or "", there.port or 80)
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.join()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.cut()

    async def join(self) -> None:
        listen = partial(asyncio.start_server, self._take, "127.0.0.1", self.port)
        self._server = await when_free(listen)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            server.close()
        pipes = list(self._pipes)
        for pipe in pipes:
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._there)
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            pipe = asyncio.create_task(_pass_on(source, sink))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()
