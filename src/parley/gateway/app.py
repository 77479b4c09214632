"""The gateway: wires intake, lanes, turns and delivery together for one profile."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from parley import __version__
from parley.backends.base import Backend
from parley.config.settings import Settings
from parley.gateway.access import Access
from parley.gateway.commands import Commands
from parley.gateway.delivery import Deliveries, SurfacePort
from parley.gateway.intake import FrontDoor, Intake, Stopping
from parley.gateway.lanes import Lanes
from parley.gateway.live import Live
from parley.gateway.routing import Router
from parley.gateway.status import DeliveryNote, GatewayStatus, SurfaceStatus
from parley.gateway.turns import TurnRunner
from parley.profiles import Profile
from parley.protocol import InboundMessage, ParleyError, SessionSource
from parley.storage.contract import Receipt, Store

__all__ = ["Gateway", "HostedSurface"]

_log = logging.getLogger("parley.gateway")

_FLUSH_SECONDS = 2.0


class HostedSurface(SurfacePort, Protocol):
    """A surface as the gateway runs it."""

    @property
    def vouches(self) -> bool:
        """Whether the surface itself makes sure that every sender is the owner."""

    @property
    def where(self) -> str:
        """In a few words, where people find it."""

    async def start(self, door: FrontDoor) -> None: ...

    async def stop(self) -> None: ...


class Gateway:
    """Serves one profile on some surfaces: `start`, then `stop`."""

    def __init__(
        self,
        profile: Profile,
        settings: Settings,
        *,
        store: Store,
        backend: Backend,
        surfaces: Sequence[HostedSurface],
    ) -> None:
        owner = f"{os.getpid()}-{secrets.token_hex(4)}"
        by_platform = {surface.platform: surface for surface in surfaces}
        live = Live()
        self.profile = profile
        self._settings = settings
        self._store = store
        self._backend = backend
        self._surfaces = tuple(surfaces)
        self._owner = owner
        self._lanes = Lanes(
            store,
            owner=owner,
            platforms=tuple(by_platform),
            concurrency=settings.gateway.running_turns,
        )
        self._deliveries = Deliveries(store, owner=owner, surfaces=by_platform, live=live)
        self._router = Router(profile)
        self._commands = Commands(
            store=store, lanes=self._lanes, deliveries=self._deliveries, models=backend.models
        )
        self._intake = Intake(
            access=Access(surface.platform for surface in surfaces if surface.vouches),
            router=self._router,
            lanes=self._lanes,
            commands=self._commands,
            busy=settings.gateway.busy,
        )
        self._runner = TurnRunner(
            profile,
            store=store,
            backend=backend,
            live=live,
            deliveries=self._deliveries,
            steers=settings.gateway.busy == "steer",
        )
        self._started_at = time.monotonic()
        self._state = "starting"
        self._faults: dict[str, str] = {}
        self._broken: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # ── the front door ──

    async def admit(self, message: InboundMessage) -> Receipt:
        if self._state != "serving":
            raise Stopping("The gateway is stopping; please try again in a moment.")
        return await self._intake.admit(message)

    async def back(self, source: SessionSource) -> None:
        await self._deliveries.back(self._router.route(source).lane, source.platform)

    async def status(self) -> GatewayStatus:
        health = await self._store.health()
        return GatewayStatus(
            version=__version__,
            pid=os.getpid(),
            profile=self.profile.name,
            home=str(self.profile.home),
            answered_by=self._answered_by(),
            uptime_seconds=round(time.monotonic() - self._started_at, 1),
            state=self._state,
            faults=tuple(self._broken.values()),
            running=health.running,
            queued=health.queued,
            undelivered=health.undelivered,
            surfaces=tuple(
                SurfaceStatus(surface.platform, surface.where, self._faults.get(surface.platform))
                for surface in self._surfaces
            ),
            doubtful=tuple(
                DeliveryNote(found.id, found.lane, found.state, found.text)
                for found in (*health.unsure, *health.dead)
            ),
        )

    # ── life ──

    async def start(self) -> None:
        """Take up what an earlier process left, then open the surfaces.

        One surface that cannot start is reported and leaves the others alone; none at all is an
        error.
        """
        repeatable = [s.platform for s in self._surfaces if s.knows_repeats]
        left = await self._store.recover(self._owner, repeatable)
        if left:
            _log.info("resuming", extra={"turns": left})
        self._state = "serving"
        self._tasks = [
            asyncio.create_task(self._keep("lanes", partial(self._lanes.serve, self._runner))),
            asyncio.create_task(self._keep("deliveries", self._deliveries.serve)),
        ]
        self._lanes.look_again()
        await self._commands.recover()
        for surface in self._surfaces:
            await self._open(surface)
        if self._surfaces and len(self._faults) == len(self._surfaces):
            first = next(iter(self._faults.values()))
            await self.stop()
            raise ParleyError(first)

    async def stop(self, *, at_once: bool = False) -> None:
        """Let running turns finish for a while, set the others aside, and close everything."""
        self._state = "stopping"
        seconds = 0.0 if at_once else self._settings.gateway.drain_seconds
        interrupted = await self._lanes.drain(seconds)
        if interrupted:
            _log.info("set_aside", extra={"turns": interrupted})
        await self._deliveries.flush(_FLUSH_SECONDS)
        for surface in self._surfaces:
            await self._close(surface)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._backend.close()
        await self._store.close()
        self._state = "stopped"

    def hurry(self) -> None:
        """Wait no longer for running turns."""
        self._lanes.hurry()

    async def _keep(self, name: str, serve: Callable[[], Awaitable[None]]) -> None:
        """The supervisor of what runs for ever: a fault is told, and it begins again."""
        pause = 0.5
        while True:
            try:
                await serve()
            except Exception as error:  # noqa: BLE001 - the supervisor
                _log.exception("broke_off", extra={"part": name, "again_in": pause})
                self._broken[name] = f"{name} broke off: {_first(error)}"
            await asyncio.sleep(pause)
            pause = min(pause * 2, 30.0)
            self._broken.pop(name, None)

    async def _open(self, surface: HostedSurface) -> None:
        try:
            await surface.start(self)
        except (ParleyError, OSError) as error:
            self._faults[surface.platform] = str(error)
            _log.error("surface_fault", extra={"platform": surface.platform, "why": str(error)})

    async def _close(self, surface: HostedSurface) -> None:
        try:
            async with asyncio.timeout(5):
                await surface.stop()
        except (ParleyError, OSError, TimeoutError) as error:
            _log.warning("surface_close", extra={"platform": surface.platform, "why": str(error)})

    def _answered_by(self) -> str:
        menu = self._backend.models
        if menu is None:
            return "a remote agent"
        try:
            return menu.describe(None, None)
        except ParleyError as error:
            return str(error)


def _first(error: BaseException) -> BaseException:
    """What went wrong first, of several things that went wrong together."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
