"""What every kept connection to a server needs: a session, its proxy, and the end of an answer."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from parley import __version__

if TYPE_CHECKING:
    import aiohttp

__all__ = ["kept_session", "read_at_most", "read_last_bytes", "was_closed"]

_KEEP_SECONDS: Final = 60.0
_LAST_BYTES_SECONDS: Final = 0.05


def kept_session(
    address: str,
    *,
    headers: Mapping[str, str],
    timeout: aiohttp.ClientTimeout,
    traces: Sequence[aiohttp.TraceConfig] = (),
) -> aiohttp.ClientSession:
    """A session that keeps its connections to `address`, and sends `headers` each time."""
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={
            "Accept-Encoding": "identity",  # compressors hold streamed text back
            "User-Agent": f"parley/{__version__}",
            **headers,
        },
        timeout=timeout,
        proxy=_proxy_for(address),
        trace_configs=list(traces),
    )


def was_closed(error: Exception) -> bool:
    """Whether a kept connection turned out to be closed, with nothing having come by it."""
    import aiohttp

    if isinstance(error, aiohttp.ServerDisconnectedError):
        return True
    return (
        isinstance(error, OSError)
        and not isinstance(error, aiohttp.ClientConnectorError)
        and error.errno in {errno.ECONNRESET, errno.EPIPE}
    )


async def read_at_most(content: aiohttp.StreamReader, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size < limit and (piece := await content.read(limit - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


async def read_last_bytes(content: aiohttp.StreamReader) -> None:
    """Read the end of an answer that is complete, so that its connection can be used again."""
    from asyncio import timeout

    import aiohttp

    if content.at_eof():
        return
    try:
        async with timeout(_LAST_BYTES_SECONDS):
            while await content.readany():
                pass
    except (aiohttp.ClientError, TimeoutError, OSError):
        return


def _proxy_for(address: str) -> str | None:
    """The proxy that the environment names for `address`; none for this machine itself."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    from parley.agent.providers.addresses import is_nearby

    parts = urlsplit(address)
    if is_nearby(address) or proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
