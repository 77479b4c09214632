"""A client of the direct-agent protocol, frame by frame, and a house that serves it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp

from parley.config.settings import ApiConfig
from parley.surfaces.agent_ws.surface import AgentWsSurface
from parley.surfaces.api.surface import ApiSurface
from tests.gateway.house import House
from tests.servers.api_server import an_api, local_key

__all__ = ["ALL", "DirectHouse", "Line", "connect", "text_of"]

ALL = ("ids", "attachments", "instructions", "approvals", "callbacks", "progress")
_PATIENCE = 60.0


class Line:
    """One open connection."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.seen: list[dict[str, Any]] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send_str(json.dumps({"type": kind, **fields}))

    async def hear(self) -> dict[str, Any]:
        """The next frame."""
        async with asyncio.timeout(_PATIENCE):
            message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, (message, self.socket.close_code, self.seen)
        frame: dict[str, Any] = json.loads(message.data)
        self.seen.append(frame)
        return frame

    async def until(self, *kinds: str) -> dict[str, Any]:
        """The next frame of one of these kinds; those before it are in `seen`."""
        while (frame := await self.hear())["type"] not in kinds:
            continue
        return frame

    async def closed(self) -> int | None:
        """The code that the other end closes with."""
        async with asyncio.timeout(_PATIENCE):
            message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE, message
        return self.socket.close_code

    async def ask(self, text: str, **more: Any) -> str:
        """The answer, which ends well."""
        frames = await self.exchange(text, **more)
        assert frames[-1]["type"] == "AGENT_EVENT_END", frames
        return text_of(frames)

    async def exchange(self, text: str, **more: Any) -> list[dict[str, Any]]:
        """All frames of an answer."""
        before = len(self.seen)
        await self.send("USER_MESSAGE", text=text, **more)
        await self.until("AGENT_EVENT_END", "ERROR")
        return self.seen[before:]

    def drop(self) -> None:
        """As when a cable is pulled: no word of it."""
        connection = self.socket._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()


def text_of(frames: Sequence[Mapping[str, Any]]) -> str:
    return "".join(each["text"] for each in frames if each["type"] == "AGENT_EVENT_TEXT_CHUNK")


@asynccontextmanager
async def connect(
    where: str,
    key: str,
    thread: str | None = "t1",
    *,
    knows: Sequence[str] | None = None,
    headers: Mapping[str, str] | None = None,
    path: str = "/agent_ws/",
) -> AsyncIterator[Line]:
    """Connected; with `knows` it has said HELLO."""
    query = {} if thread is None else {"thread_id": thread}
    named = {"Authorization": f"Bearer {key}", **(headers or {})}
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(where + path, params=query, headers=named, max_msg_size=0) as socket,
    ):
        line = Line(socket)
        if thread is not None and thread.strip():
            assert (await line.hear())["type"] == "STATUS"
        if knows is not None:
            await line.send("HELLO", capabilities=list(knows))
        yield line


class DirectHouse:
    """A house whose gateways serve `/agent_ws/`, at one address through all of them."""

    def __init__(self, house: House, *, config: ApiConfig | None = None) -> None:
        self.house = house
        self.direct = AgentWsSurface()
        self._config = config
        self._port = 0
        self._sections: dict[str, Any] = {}
        self._api: ApiSurface | None = None

    @property
    def where(self) -> str:
        assert self._api is not None
        return self._api.where

    @property
    def key(self) -> str:
        return local_key(self.house.profile)

    async def open(self, **sections: Any) -> None:
        self._sections = sections or self._sections
        profile = self.house.profile
        mounted = [self.direct]
        self._api = an_api(profile, port=self._port, config=self._config, mounted=mounted)
        self.house.more_surfaces = [self.direct, self._api]
        await self.house.open(**self._sections)
        self._port = int(self.where.rpartition(":")[2])

    def line(self, thread: str | None = "t1", **more: Any) -> AbstractAsyncContextManager[Line]:
        return connect(self.where, more.pop("key", self.key), thread, **more)

    async def lanes(self) -> dict[str, list[tuple[str, str]]]:
        """What was said in each lane of this surface."""
        store = self.house.store
        assert store is not None
        return {
            record.lane: [
                (entry.message.role, entry.message.text)
                for entry in await store.transcript(record.id, whole=True)
            ]
            for record in await store.sessions()
            if ":direct:" in record.lane
        }
