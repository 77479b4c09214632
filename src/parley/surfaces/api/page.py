"""`/openapi.json` and `/docs`: what the API is, for programs and for people."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, Final

from parley.surfaces.api.callers import Caller
from parley.surfaces.api.desk import Desk

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["description", "readable", "root"]

_HOST: Final = re.compile(r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?")
_CACHED: Final = "public, max-age=60"
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


async def description(desk: Desk, request: web.Request, caller: Caller | None) -> web.Response:
    """The list of routes, for programs."""
    from aiohttp import web

    return web.Response(
        body=_json(), content_type="application/json", headers={"Cache-Control": _CACHED}
    )


async def readable(desk: Desk, request: web.Request, caller: Caller | None) -> web.Response:
    """The list of routes, for people."""
    from aiohttp import web

    headers = {"Cache-Control": _CACHED, "Content-Security-Policy": _POLICY}
    # Only the caller knows by which name and port it came; what is no name is not shown.
    named = _HOST.fullmatch(request.host) is not None
    body = _html(f"{request.scheme}://{request.host}" if named else None)
    return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)


async def root(request: web.Request) -> web.Response:
    """Leads to the page for people."""
    from aiohttp import web

    raise web.HTTPFound("/docs")


@functools.lru_cache(16)
def _document(server: str | None = None) -> dict[str, Any]:
    from parley.surfaces.api.openapi import openapi_document
    from parley.surfaces.api.routes import ROUTES

    return openapi_document(ROUTES, server=server)


@functools.cache
def _json() -> bytes:
    return json.dumps(_document(), ensure_ascii=False, separators=(",", ":")).encode()


@functools.lru_cache(16)
def _html(server: str | None = None) -> bytes:
    from parley.surfaces.api.readable import render_page

    return render_page(_document(server)).encode()
