"""A direct agent on loopback: what it says on each connection is a script of the test's.

`plain` and `Capable` are scripts of well-behaved ones: one that knows text alone, and one that
answers each message id once, keeps connections, and calls back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeAlias

from aiohttp import WSMsgType, web

from parley.backends.direct.frames import CAPABILITIES
from tests.servers.ports import start_site

__all__ = ["Capable", "DirectAgent", "Gone", "Peer", "plain"]


class Gone(Exception):
    """The client closed the connection."""


@dataclass
class Peer:
    """One connection as the agent sees it."""

    thread: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    socket: web.WebSocketResponse
    request: web.Request
    heard: list[dict[str, Any]] = field(default_factory=list)
    close_code: int | None = None
    is_over: bool = False

    async def say(self, type: str, **fields: Any) -> None:
        await self.socket.send_str(json.dumps({"type": type, **fields}))

    async def hear(self, type: str | None = None) -> dict[str, Any]:
        """The next frame, or the next of this type."""
        while True:
            message = await self.socket.receive()
            if message.type is not WSMsgType.TEXT:
                raise Gone
            frame: dict[str, Any] = json.loads(message.data)
            self.heard.append(frame)
            if type in (None, frame["type"]):
                return frame

    async def answer(self, *pieces: str, tokens_used: int | None = None, **end: Any) -> None:
        for piece in pieces:
            await self.say("AGENT_EVENT_TEXT_CHUNK", text=piece)
        if tokens_used is not None:
            end["tokens_used"] = tokens_used
        await self.say("AGENT_EVENT_END", **end)

    async def until_gone(self) -> None:
        with suppress(Gone):
            while True:
                await self.hear()

    def abort(self) -> None:
        """Break the connection without a word."""
        assert self.request.transport is not None
        self.request.transport.abort()


Script: TypeAlias = Callable[[Peer], Awaitable[None]]


async def plain(peer: Peer) -> None:
    """Echoes one message, and closes."""
    await peer.say("STATUS")
    message = await peer.hear()
    text = message["text"]
    await peer.answer(text[: len(text) // 2], text[len(text) // 2 :], tokens_used=7)


class Capable:
    """Knows everything. `answers` are by message id, however often one is asked."""

    def __init__(self, *capabilities: str) -> None:
        self.capabilities = list(capabilities or CAPABILITIES)
        self.answers: dict[str, str] = {}
        self.asked: list[str] = []
        self.pending: dict[str, int] = {}
        self.untold: dict[str, dict[str, dict[str, Any]]] = {}
        self.peers: dict[str, Peer] = {}
        self.confirmed: list[str] = []
        self.reply: Callable[[Peer, dict[str, Any]], Awaitable[None]] = self.echo

    async def __call__(self, peer: Peer) -> None:
        waiting = self.pending.get(peer.thread, 0) + len(self.untold.get(peer.thread, {}))
        await peer.say("STATUS", capabilities=self.capabilities, pending=waiting)
        await peer.hear("HELLO")
        self.peers[peer.thread] = peer
        for callback in self.untold.get(peer.thread, {}).values():
            await peer.say("CALLBACK", **callback)
        while True:
            frame = await peer.hear()
            if frame["type"] == "USER_MESSAGE":
                await self.reply(peer, frame)
            elif frame["type"] == "CALLBACK_RECEIVED":
                self.confirmed.append(frame["id"])
                self.untold.get(peer.thread, {}).pop(frame["id"], None)

    async def echo(self, peer: Peer, frame: dict[str, Any]) -> None:
        name = frame["id"]
        self.asked.append(name)
        text = self.answers.setdefault(name, f"echo {len(self.answers) + 1}: {frame['text']}")
        pending = self.pending.get(peer.thread, 0)
        await peer.answer(text, tokens_used=3, pending=pending)

    async def call_back(self, thread: str, id: str, text: str, **fields: Any) -> None:
        """Something has ended: say it, now or when the thread is open again."""
        self.pending[thread] = max(0, self.pending.get(thread, 0) - 1)
        fields.setdefault("pending", self.pending[thread])
        callback = {"id": id, "text": text, **fields}
        self.untold.setdefault(thread, {})[id] = callback
        peer = self.peers.get(thread)
        if peer is not None and not peer.is_over:
            await peer.say("CALLBACK", **callback)


class DirectAgent:
    """Serves `script` at `url`. `refuse` is a status to refuse the handshake with."""

    def __init__(self, script: Script = plain, *, key: str | None = None, port: int = 0) -> None:
        self.script = script
        self.refuse: int | None = None
        self.peers: list[Peer] = []
        self.port = port
        self._key = key
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/agent_ws/"

    @property
    def open(self) -> int:
        """How many connections are open."""
        return sum(not peer.is_over for peer in self.peers)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages that arrived, on whichever connection."""
        return [
            frame for peer in self.peers for frame in peer.heard if frame["type"] == "USER_MESSAGE"
        ]

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/agent_ws/", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        self.port = await start_site(self._runner, self.port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for peer in self.peers:
            if not peer.is_over:
                peer.abort()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.refuse is not None:
            return web.Response(status=self.refuse, text="no")
        if self._key and request.headers.get("Authorization") != f"Bearer {self._key}":
            return web.Response(status=401)
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        peer = Peer(
            request.query.get("thread_id", ""),
            list(request.query.items()),
            request.headers,
            socket,
            request,
        )
        self.peers.append(peer)
        try:
            with suppress(Gone, ConnectionError, asyncio.TimeoutError):
                await self.script(peer)
            await socket.close()
        finally:
            peer.close_code = socket.close_code
            peer.is_over = True
        return socket
