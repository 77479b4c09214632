"""A session that connects to vetted addresses only. Imported when the first page is fetched."""

from __future__ import annotations

import socket
import ssl

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from parley import __version__
from parley.agent.tools.web.destination import Vetted

__all__ = ["pinned_session"]

_HEADERS = {
    "User-Agent": f"parley/{__version__}",
    "Accept": "text/html, text/plain, application/json;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}


def pinned_session(vetted: Vetted, context: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """For this one destination: no name is resolved again, no cookie kept, no proxy used."""

    def open_socket(info: aiohttp.AddrInfoType) -> socket.socket:
        # The last moment before a connection, whichever way its address came.
        if info[4][0] not in vetted.addresses:
            raise OSError("the address was not vetted")
        return socket.socket(info[0], info[1], info[2])

    connector = aiohttp.TCPConnector(
        resolver=_Pinned(vetted),
        use_dns_cache=False,
        force_close=True,
        socket_factory=open_socket,
        ssl=context or True,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=_HEADERS,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        trust_env=False,
        read_bufsize=65536,
    )


class _Pinned(AbstractResolver):
    """Knows one host and its vetted addresses."""

    def __init__(self, vetted: Vetted) -> None:
        self._vetted = vetted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host != self._vetted.destination.host:
            raise OSError("the host was not vetted")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in self._vetted.addresses
        ]

    async def close(self) -> None:
        return
