"""What the server tells of itself: how it is, who answers, what it can do."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from parley import __version__
from parley.gateway.status import GatewayStatus
from parley.memory.embeddings import find_embedder
from parley.surfaces.api.callers import Caller
from parley.surfaces.api.desk import Desk

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["capabilities", "health", "health_v1", "healthz", "metrics", "model", "models", "readyz"]

_FEATURES: Final = (
    "chat.completions",
    "responses",
    "runs",
    "streaming",
    "tools",
    "attachments",
    "response_format",
    "sessions",
    "idempotency",
    "events",
    "approvals",
)
_STARTED: Final = int(time.time())


async def healthz(desk: Desk, request: web.Request, caller: Caller | None) -> web.Response:
    """The process lives."""
    from aiohttp import web

    return web.json_response({"status": "ok"})


async def health(desk: Desk, request: web.Request, caller: Caller | None) -> web.Response:
    """The process lives: the name that Hermes has for it."""
    return await healthz(desk, request, caller)


async def health_v1(desk: Desk, request: web.Request, caller: Caller | None) -> web.Response:
    """The process lives: Hermes' name for clients with a base address that ends in `/v1`."""
    return await healthz(desk, request, caller)


async def readyz(desk: Desk, request: web.Request, caller: Caller | None) -> web.Response:
    """Whether messages are taken; what is wrong is told to whoever may know."""
    from aiohttp import web

    status = _seen_by(await desk.door.status(), caller)
    ready = status.ready
    if caller is not None and caller.path_profile is not None:
        named = caller.target()
        ready = ready and any(each.name == named and each.sound for each in status.profiles)
    told: dict[str, Any] = {"ready": ready}
    if caller is not None and "admin" in caller.key.scopes:
        told |= {
            "degraded": status.degraded,
            "state": status.state,
            "version": status.version,
            "surfaces": {place.platform: place.fault or "ok" for place in status.surfaces},
            "profiles": {
                profile.name: {
                    "ready": profile.sound,
                    "problems": profile.problems,
                    "starting": profile.starting,
                    "surfaces": {place.platform: place.fault or "ok" for place in profile.surfaces},
                }
                for profile in status.profiles
            },
        }
    return web.json_response(told, status=200 if ready else 503)


async def metrics(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    from aiohttp import web

    from parley.surfaces.api.metrics import render

    page, kind = render(_seen_by(await desk.door.status(), caller))
    return web.Response(body=page, headers={"Content-Type": kind})


async def models(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """One model for each profile that this key may use."""
    from aiohttp import web

    found = [_model(name) for name in caller.models()]
    return web.json_response({"object": "list", "data": found})


async def model(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    from aiohttp import web

    name = request.match_info["model"]
    caller.target(name)
    return web.json_response(_model(name))


async def capabilities(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    from aiohttp import web

    told = {
        "object": "parley.capabilities",
        "server": "parley",
        "version": __version__,
        "model": caller.target(),
        "features": [*_FEATURES, *(("embeddings",) if find_embedder("auto") else ())],
        "scopes": sorted(caller.key.scopes),
        "limits": {"body_bytes": desk.rules.body_bytes},
        "delivers_later": False,
    }
    return web.json_response(told)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _STARTED, "owned_by": "parley"}


def _seen_by(status: GatewayStatus, caller: Caller | None) -> GatewayStatus:
    """A key of one profile is told of that profile, and so is who asks below its path."""
    if caller is None or (caller.key.all_profiles and caller.path_profile is None):
        return status
    mine = tuple(profile for profile in status.profiles if profile.name in caller.reach)
    return replace(status, profiles=mine, notes=())
