"""A program on loopback that takes the answers of a webhook, as it is told to."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

from aiohttp import web

from tests.servers.ports import start_site

__all__ = ["CallbackReceiver", "Posted"]


@dataclass(frozen=True, slots=True)
class Posted:
    """One request as it came."""

    request: web.BaseRequest
    answer: dict[str, Any]
    peer: object

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers

    @property
    def text(self) -> str:
        return str(self.answer["text"])


Behaviour: TypeAlias = Callable[[Posted], Awaitable[web.StreamResponse]]


async def _fine(posted: Posted) -> web.StreamResponse:
    return web.json_response({"id": f"theirs-{posted.answer['id']}"})


class CallbackReceiver:
    """`async with CallbackReceiver() as receiver`; it may be stopped, and started again."""

    def __init__(self) -> None:
        self.port = 0
        self.posted: list[Posted] = []
        self.behaviour: Behaviour = _fine
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/answers"

    @property
    def texts(self) -> list[str]:
        return [posted.text for posted in self.posted]

    def says(self, status: int, body: str = "", **headers: str) -> None:
        """Answer so from now on; `_` in a header's name is `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        async def behaviour(posted: Posted) -> web.StreamResponse:
            return web.Response(status=status, text=body, headers=named)

        self.behaviour = behaviour

    def is_fine(self) -> None:
        self.behaviour = _fine

    async def start(self) -> None:
        server = web.Server(self._take, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        self.port = await start_site(self._runner, self.port)

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _take(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = json.loads(await request.content.read())
        posted = Posted(request, answer, request.get_extra_info("peername"))
        self.posted.append(posted)
        return await self.behaviour(posted)
