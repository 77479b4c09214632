"""Single sign-on: the page where a person logs in, and the place where its token comes back."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from parley.surfaces.matrix.homeserver import Homeserver

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Landing", "landing", "sso_link", "token_in"]

_TOKEN: Final = re.compile(r"[\x21-\x7e]{8,2048}")
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>Parley</title>"
    "<p>Parley is logged in. You can close this page.</p>"
)


@dataclass(frozen=True, slots=True)
class Landing:
    """Where the browser is sent back to. `token` is done when it came."""

    url: str
    token: asyncio.Future[str]


def sso_link(server: Homeserver, back_to: str) -> str:
    """The page at which a person logs in."""
    query = urlencode({"redirectUrl": back_to})
    return f"{server.url}/_matrix/client/v3/login/sso/redirect?{query}"


def token_in(pasted: str) -> str | None:
    """The login token in what was pasted: the address that the browser ended at, or itself."""
    text = pasted.strip()
    if "loginToken=" in text:
        query = urlsplit(text).query or text.partition("?")[2] or text
        text = (parse_qs(query).get("loginToken") or [""])[0]
    elif "://" in text:
        return None
    return text if _TOKEN.fullmatch(text) else None


@asynccontextmanager
async def landing() -> AsyncIterator[Landing]:
    """Wait on this machine for the browser. Nobody else knows the path, so nobody else's token
    is taken for ours.
    """
    from aiohttp import web

    path = f"/{secrets.token_urlsafe(24)}"
    came: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def take(request: web.Request) -> web.Response:
        token = request.query.get("loginToken", "")
        if not _TOKEN.fullmatch(token):
            return web.Response(status=400, text="There is no login token in this address.")
        if not came.done():
            came.set_result(token)
        headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        return web.Response(text=_PAGE, content_type="text/html", headers=headers)

    app = web.Application()
    app.router.add_get(path, take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield Landing(f"http://127.0.0.1:{port}{path}", came)
    finally:
        came.cancel()
        await runner.cleanup()
