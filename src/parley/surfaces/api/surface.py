"""HTTP on loopback: `/healthz`, `/readyz`, `/metrics`, and what else is served over it."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from parley.gateway.intake import FrontDoor
from parley.protocol import ParleyError
from parley.storage.contract import Delivery
from parley.surfaces.base import Rejected, Surface

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["ApiSurface", "Mounted"]


class Mounted(Protocol):
    """Something else that is served over HTTP."""

    def routes(self) -> Iterable[web.AbstractRouteDef]: ...


class ApiSurface(Surface):
    """Serves programs that ask how the gateway is."""

    platform = "api"
    supports_async_delivery = False

    def __init__(self, host: str, port: int, *, mounted: Sequence[Mounted] = ()) -> None:
        self._host = host
        self._port = port
        self._mounted = tuple(mounted)
        self._runner: web.AppRunner | None = None
        self._door: FrontDoor | None = None

    @property
    def where(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def start(self, door: FrontDoor) -> None:
        from aiohttp import web

        self._door = door
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        for each in self._mounted:
            app.router.add_routes(each.routes())
        # A body is taken as it comes: what unpacks to more than it says is nobody's message.
        runner = web.AppRunner(app, access_log=None, auto_decompress=False)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as error:
            await runner.cleanup()
            raise ParleyError(self._explain(error)) from error
        self._port = runner.addresses[0][1]
        self._runner = runner

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def send(self, delivery: Delivery) -> str | None:
        raise Rejected("An HTTP client gets its answer in the request it made, or not at all.")

    def _explain(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return (
                f"Port {self._port} is in use by another program; free it, or choose another: "
                "parley config set gateway.port 8643"
            )
        return f"{self._host}:{self._port} cannot be opened ({error.strerror or error})."

    async def _healthz(self, request: web.Request) -> web.Response:
        from aiohttp import web

        return web.json_response({"status": "ok"})

    async def _readyz(self, request: web.Request) -> web.Response:
        from aiohttp import web

        if self._door is None:
            return web.json_response({"ready": False}, status=503)
        status = await self._door.status()
        detail = {
            "ready": status.ready,
            "degraded": status.degraded,
            "state": status.state,
            "version": status.version,
            "surfaces": {place.platform: place.fault or "ok" for place in status.surfaces},
            "profiles": {
                profile.name: {
                    "ready": profile.sound,
                    "problems": profile.problems,
                    "surfaces": {place.platform: place.fault or "ok" for place in profile.surfaces},
                }
                for profile in status.profiles
            },
        }
        return web.json_response(detail, status=200 if status.ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        from aiohttp import web

        from parley.surfaces.api.metrics import render

        if self._door is None:
            return web.Response(status=503)
        page, kind = render(await self._door.status())
        return web.Response(body=page, headers={"Content-Type": kind})
