"""A gate before a homeserver: it lets requests through, holds some of them, or answers for it.

Whoever stands there knows that a process is just at this place, and may kill it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from aiohttp import web

__all__ = ["Hold", "Turnstile"]

_PASSED_ON: Final = ("Authorization", "Content-Type")
_LARGEST: Final = 100 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Hold:
    """The next request that fits. `done`: the homeserver has done it, and only says so too late."""

    method: str
    part: str
    done: bool
    says: bytes
    hears: bytes
    times: int
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    lost: bool = False

    def fits(self, method: str, path: str, body: bytes) -> bool:
        asked = self.method == method and self.part in path and self.says in body
        return asked and not self.reached.is_set()

    def count(self) -> bool:
        """Whether it is this one's turn."""
        self.times -= 1
        return self.times == 0

    def lose(self) -> None:
        """It comes to nothing, now that nobody waits for it."""
        self.lost = True
        self.over.set()


class Turnstile:
    """Stands before one homeserver, at `url`."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._holds: list[Hold] = []
        self._session: aiohttp.ClientSession | None = None
        self.url = ""
        self.instead: Callable[[], web.Response] | None = None
        """What everyone is answered while it is set."""
        self.refused: set[str] = set()
        """Parts of paths whose requests are forbidden."""
        self.seen: list[tuple[str, str]] = []
        self.slow: dict[str, Callable[[], float]] = {}
        """By a part of a path: how many seconds late its answers are."""
        self.altered: dict[str, Callable[[bytes], bytes]] = {}
        """By a part of a path: what becomes of its answers."""

    @classmethod
    @asynccontextmanager
    async def before(cls, server: str) -> AsyncIterator[Turnstile]:
        gate = cls(server)
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_route("*", "/{path:.*}", gate._pass)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as gate._session:
            await site.start()
            gate.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield gate
            finally:
                for hold in gate._holds:
                    hold.lose()
                await runner.cleanup()

    def hold(
        self,
        method: str,
        part: str,
        *,
        done: bool,
        says: str = "",
        hears: str = "",
        times: int = 1,
    ) -> Hold:
        """Hold the next such request, or the one so many `times` from now.

        `says` is in what it says, and `hears` in what it is answered.
        """
        held = Hold(method, part, done, says.encode(), hears.encode(), times)
        self._holds.append(held)
        return held

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        if self.instead is not None:
            return self.instead()
        method, path = request.method, request.path_qs
        body = await request.read()
        if any(part in path for part in self.refused):
            return web.json_response({"errcode": "M_FORBIDDEN", "error": "Not here"}, status=403)
        fitting = (each for each in self._holds if each.fits(method, path, body))
        held = next(fitting, None)
        if held is not None and not held.done and held.count():
            held.reached.set()
            await held.over.wait()
            if held.lost:
                return web.Response(status=504)
        answer = await self._ask(request, body)
        told = answer.body if isinstance(answer.body, bytes) else b""
        if held is not None and held.done and held.hears in told and held.count():
            held.reached.set()
            await held.over.wait()
        for part, alter in self.altered.items():
            if part in path:
                answer.body = alter(told)
        for part, seconds in self.slow.items():
            if part in path:
                await asyncio.sleep(seconds())
        return answer

    async def _ask(self, request: web.Request, body: bytes) -> web.Response:
        assert self._session is not None
        self.seen.append((request.method, request.path))
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        try:
            async with self._session.request(
                request.method, self._server + request.path_qs, data=body, headers=headers
            ) as answer:
                return web.Response(
                    body=await answer.read(),
                    status=answer.status,
                    content_type=answer.content_type,
                )
        except aiohttp.ClientError:
            return web.Response(status=502, text="<html>Bad gateway</html>")
