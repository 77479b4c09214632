"""`/openapi.json` and `/docs`: what the API is, for programs and for people."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Final

from parley.surfaces.api.callers import Caller
from parley.surfaces.api.desk import Desk

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["description", "readable"]

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
    return web.Response(body=_html(), content_type="text/html", charset="utf-8", headers=headers)


@functools.cache
def _document() -> dict[str, Any]:
    from parley.surfaces.api.openapi import openapi_document
    from parley.surfaces.api.routes import ROUTES

    return openapi_document(ROUTES, server=None)


@functools.cache
def _json() -> bytes:
    return json.dumps(_document(), ensure_ascii=False, separators=(",", ":")).encode()


@functools.cache
def _html() -> bytes:
    from parley.surfaces.api.readable import render_page

    return render_page(_document()).encode()
