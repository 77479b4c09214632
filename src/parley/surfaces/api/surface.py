"""The API: HTTP for programs, on loopback unless there are keys."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from parley.config.hosts import is_loopback, is_wildcard, url_host, url_origin
from parley.config.settings import GatewayConfig
from parley.gateway.intake import FrontDoor
from parley.gateway.live import LiveEvent
from parley.profiles import Profile
from parley.protocol import ParleyError
from parley.storage.contract import Delivery
from parley.surfaces.base import Rejected, Surface

if TYPE_CHECKING:
    from aiohttp import web

    from parley.surfaces.api.callers import Callers
    from parley.surfaces.api.desk import Desk
    from parley.surfaces.api.edge import EdgeRules
    from parley.surfaces.api.site import Site
    from parley.surfaces.api.tls import CertificateFiles

__all__ = ["ApiSurface", "Mounted", "plain_http_fault"]

_log = logging.getLogger("parley.api")

_PRUNED_EVERY = 3600.0
_GRACE = 1.0


class Mounted(Protocol):
    """Something else that is served over HTTP."""

    def routes(self, callers: Callers, /) -> Iterable[web.AbstractRouteDef]:
        """What it answers; `callers` knows the keys, for what they open too."""


def plain_http_fault(host: str, network: GatewayConfig) -> str | None:
    """Why HTTP is not served on `host` as the settings stand: keys would travel in the clear."""
    url = network.public_url or ""
    if is_loopback(host) or network.tls.certificate or url.startswith("https://"):
        return None
    return (
        f"HTTP without TLS is not served on {host}: set gateway.tls.certificate and "
        "gateway.tls.key, or gateway.public_url to the https:// address of a proxy in front that "
        "terminates TLS, or gateway.host to 127.0.0.1."
    )


class ApiSurface(Surface):
    """Serves programs. Each gets its answer in the request it made, or from its run; never later.

    `profiles` are those whose keys are known here, and `home` is the house's own.
    """

    platform = "api"
    supports_async_delivery = False
    shows_questions = True
    vouches = True

    def __init__(
        self,
        host: str,
        port: int,
        *,
        home: Profile,
        profiles: Callable[[], Sequence[Profile]],
        network: GatewayConfig | None = None,
        mounted: Sequence[Mounted] = (),
    ) -> None:
        self._host = host
        self._port = port
        self._home = home
        self._profiles = profiles
        self._network = network or GatewayConfig()
        self._config = self._network.api
        self._mounted = tuple(mounted)
        self._site: Site | None = None
        self._desk: Desk | None = None
        self._certificate: CertificateFiles | None = None
        self._opened = asyncio.Event()
        self._pruning: asyncio.Task[None] | None = None

    @property
    def where(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        scheme = "https" if self._network.tls.certificate else "http"
        return f"{scheme}://{host}:{self._port}"

    @property
    def note(self) -> str | None:  # type: ignore[override]
        return None if self._certificate is None else self._certificate.fault

    async def start(self, door: FrontDoor) -> None:
        from aiohttp import web

        from parley.config.api_keys import KeyRing
        from parley.surfaces.api.auth_attempts import AuthAttempts
        from parley.surfaces.api.callers import Callers
        from parley.surfaces.api.desk import Desk, DeskRules
        from parley.surfaces.api.edge import guard_edge
        from parley.surfaces.api.results import render
        from parley.surfaces.api.routes import add_routes
        from parley.surfaces.api.site import open_site
        from parley.surfaces.api.tls import find_certificate

        near = is_loopback(self._host)
        ring = KeyRing(self._profiles, self._home, allow_local=near)
        if near:
            await asyncio.to_thread(ring.local_key)
        elif not await asyncio.to_thread(ring.has_keys):
            raise ParleyError(
                f"The API is not opened on {self._host} without a key: make one with "
                "`parley keys create`, or set gateway.host to 127.0.0.1."
            )
        elif (fault := plain_http_fault(self._host, self._network)) is not None:
            raise ParleyError(fault)
        certificate = find_certificate(self._network.tls, self._home.home)
        config = self._config
        callers = Callers(
            ring,
            home=self._home.name,
            per_minute=config.requests_per_minute,
            aliases=config.models,
            attempts=AuthAttempts(self._network.trusted_proxies, home=self._home),
        )
        rules = DeskRules(body_bytes=config.body_mb * 1024 * 1024)
        desk = Desk(door, callers, rules, render=render)
        app = web.Application()
        guard_edge(app, self._rules())
        add_routes(app, desk)
        for each in self._mounted:
            app.router.add_routes(each.routes(callers))
        try:
            site = await open_site(app, self._host, self._port, certificate=certificate)
        except OSError as error:
            raise ParleyError(self._explain(error)) from error
        self._port = site.port
        self._site, self._desk = site, desk
        self._certificate = certificate
        desk.open_records()
        self._opened.set()
        self._pruning = asyncio.create_task(self._prune_for_ever(desk), name="api-pruning")

    async def stop(self) -> None:
        if self._pruning is not None:
            self._pruning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pruning
        if self._desk is not None:
            self._desk.leave()
        if self._site is not None:
            await self._site.close(_GRACE)
        if self._desk is not None:
            await self._desk.close()

    async def send(self, delivery: Delivery) -> str | None:
        raise Rejected("An HTTP client gets its answer in the request it made, or not at all.")

    async def show(self, event: LiveEvent) -> None:
        # Turns that an earlier process left go on before there is a desk to tell of them.
        await self._opened.wait()
        if self._desk is not None and event.request is not None:
            self._desk.take(event)

    async def _prune_for_ever(self, desk: Desk) -> None:
        while True:
            await asyncio.sleep(_PRUNED_EVERY)
            try:
                await desk.prune()
            except Exception:  # noqa: BLE001 - the supervisor: it is tried again
                _log.exception("pruning_broke_off")

    def _rules(self) -> EdgeRules:
        from parley.surfaces.api.edge import EdgeRules

        url = self._network.public_url
        origins, hosts = list(self._config.origins), [*self._network.hosts, self._host]
        if url is not None:
            origins.append(url_origin(url))
            hosts.append(url_host(url) or "")
        return EdgeRules.of(origins, hosts, any_address=is_wildcard(self._host))

    def _explain(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return (
                f"Port {self._port} is in use by another program; free it, or choose another: "
                "parley config set gateway.port 8643"
            )
        return f"{self._host}:{self._port} cannot be opened ({error.strerror or error})."
