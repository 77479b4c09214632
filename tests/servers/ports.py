"""Ports on loopback that no other test, and no connection, takes meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiohttp import web

__all__ = ["free_port", "listens", "start_site", "when_free"]

T = TypeVar("T")

_PORTS: Final = range(20_000, 32_000)
"""Below those that the system gives to outgoing connections, which come and go all the time."""
_claims: Final[list[socket.socket]] = []
# The tests' own generator starts anew with every test, and alike in every worker.
_random: Final = random.SystemRandom()


def free_port() -> int:
    """For a server that is started later, or for an address where nothing listens.

    No other process that asks here is given it while this one lives.
    """
    while True:
        port = _random.choice(_PORTS)
        if _is_free(port) and _claim(port):
            return port


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


async def start_site(runner: web.BaseRunner, port: int, *, backlog: int = 128) -> int:
    """Serve at `port`, 0 for any; returns which. A server that comes back waits for its own."""

    def start() -> Awaitable[None]:
        return web.TCPSite(runner, "127.0.0.1", port, backlog=backlog, reuse_address=True).start()

    await when_free(start)
    return int(runner.addresses[0][1])


async def when_free(start: Callable[[], Awaitable[T]], *, seconds: float = 10.0) -> T:
    """Try again as long as the port is taken: an outgoing connection may have it for a moment."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.05)


def _is_free(port: int) -> bool:
    with socket.socket() as tried, contextlib.suppress(OSError):
        tried.bind(("127.0.0.1", port))
        return True
    return False


def _claim(port: int) -> bool:
    """By a name that ends with this process, and that but one can have."""
    if sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0parley-test-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True
