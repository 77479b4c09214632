"""Single sign-on at a terminal: the link, and the wait for the browser or for what is pasted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import typer

from parley.protocol import ParleyError
from parley.surfaces.matrix.homeserver import Homeserver
from parley.surfaces.matrix.sso import landing, sso_link, token_in

__all__ = ["token_by_sso"]

_WITHIN: Final = 600.0


async def token_by_sso(server: Homeserver) -> str:
    """Let a person log in with a browser; returns the login token that comes of it."""
    async with landing() as place:
        link = sso_link(server, place.url)
        typer.echo(f"Open this page and log in there:\n  {link}", err=True)
        typer.echo(
            "If that browser is on another machine, paste the address that it ends at:", err=True
        )
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            await asyncio.to_thread(_open, link)
        async with _pasted() as pasted:
            done, _ = await asyncio.wait(
                (place.token, pasted), timeout=_WITHIN, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                raise ParleyError(
                    f"Nobody has logged in within {_WITHIN / 60:.0f} minutes; run it again."
                )
            return done.pop().result()


@asynccontextmanager
async def _pasted() -> AsyncIterator[asyncio.Future[str]]:
    """Done when a line with a token in it came on standard input."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[str] = loop.create_future()

    def take() -> None:
        line = sys.stdin.readline()
        token = token_in(line)
        if not line:
            loop.remove_reader(sys.stdin)
        elif token is not None and not came.done():
            came.set_result(token)
        elif line.strip():
            typer.echo("There is no login token in that; paste the whole address.", err=True)

    reads = False
    # A file or a closed stream cannot be waited for; the browser still can.
    with contextlib.suppress(OSError, ValueError, NotImplementedError):
        loop.add_reader(sys.stdin, take)
        reads = True
    try:
        yield came
    finally:
        came.cancel()
        if reads:
            loop.remove_reader(sys.stdin)


def _open(link: str) -> None:
    import webbrowser

    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(link)
