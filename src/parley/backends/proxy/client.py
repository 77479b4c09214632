"""The way to a remote agent: one kept session, requests that are sent again only when nobody got
them, clear errors.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from parley.agent.providers.connections import kept_session, read_at_most, was_closed
from parley.backends.proxy.faults import FarEnd, ProxyError
from parley.config.errors import ConfigError
from parley.config.proxy import address_fault, clean_address

if TYPE_CHECKING:
    import aiohttp

__all__ = ["RemoteServer"]

_ERROR_BODY_BYTES: Final = 64 * 1024
_CONNECT_SECONDS: Final = 10.0
_ERROR_BODY_SECONDS: Final = 5.0
_AFTER_THE_END_SECONDS: Final = 5.0
_TRIES: Final = 6
_TRYING_SECONDS: Final = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.4, 2.0
# A kept connection that was closed just before its use shows it within a round trip.
_SHOWS_WITHIN_SECONDS: Final = 1.0


class RemoteServer:
    """One far end. The session is made at the first call and kept until `close`."""

    def __init__(self, url: str, *, silence_seconds: float) -> None:
        from urllib.parse import urlsplit

        address = clean_address(url) or ""
        if address_fault(address) is not None:
            raise ConfigError(
                "The address of the remote agent cannot be used: set `gateway.proxy_url` to one "
                "that begins with http:// or https:// and holds no name, password, `?` or `#`."
            )
        parts = urlsplit(address)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        self.shown = f"{parts.scheme}://{host}{'' if parts.port is None else f':{parts.port}'}"
        # Some addresses are given with the `/v1` that every path begins with.
        self._root = self.shown + parts.path.removesuffix("/v1").rstrip("/")
        self._silence_seconds = silence_seconds
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self, path: str, payload: bytes, *, headers: Mapping[str, str], far: FarEnd
    ) -> aiohttp.ClientResponse:
        """The answer to `payload`, as soon as it begins; raises `ProxyError` when it is none.

        It is sent again only when nothing of it was accepted, and only for a short while.
        """
        now = asyncio.get_running_loop().time
        give_up = now() + _TRYING_SECONDS
        attempt = 1
        while True:
            try:
                return await self._post(path, payload, headers, far=far, until=give_up)
            except ProxyError as error:
                if not error.again or attempt == _TRIES:
                    raise
                longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (attempt - 1))
                pause = longest * (1.0 + random.random()) / 2  # noqa: S311 - jitter
                if error.failed.retry_after is not None:
                    # Never earlier than asked, and not all callers at the same instant.
                    pause = error.failed.retry_after + pause / 4
                if now() + pause >= give_up:
                    raise
            await asyncio.sleep(pause)
            attempt += 1

    async def get(self, path: str, *, headers: Mapping[str, str], far: FarEnd) -> tuple[int, bytes]:
        """A small answer: its status and the beginning of its body. Never sent again."""
        import aiohttp

        try:
            session = self._get_session()
            async with session.get(
                self._root + path, headers=headers, allow_redirects=False
            ) as response:
                return response.status, await read_at_most(response.content, _ERROR_BODY_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self.fault(error, far) from error

    async def read(
        self, response: aiohttp.ClientResponse, *, far: FarEnd, is_over: bool = False
    ) -> bytes:
        """The next piece of an answer, empty at its end. `is_over`: all that matters is here."""
        import aiohttp

        try:
            async with asyncio.timeout(_AFTER_THE_END_SECONDS if is_over else None):
                return await response.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self.fault(error, far) from error

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def fault(self, error: Exception, far: FarEnd) -> ProxyError:
        """What an error of the connection stands for."""
        import aiohttp

        nothing = f"nothing answers at {self.shown}"
        match error:
            case aiohttp.ClientConnectorDNSError():
                what = f"the name in {self.shown} is not known; check `gateway.proxy_url`"
                return far.unreachable(what)
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
                return far.unreachable(
                    f"no safe connection to {self.shown}: its certificate or its TLS is not as it "
                    "should be; check `gateway.proxy_url` and this machine's clock"
                )
            case aiohttp.ClientConnectorError():
                return far.unreachable(
                    f"{nothing}; start the agent there, or check `gateway.proxy_url`"
                )
            case aiohttp.ConnectionTimeoutError():
                what = f"{nothing} within {_CONNECT_SECONDS:.0f} s; check the network connection"
                return far.unreachable(what, kind="timeout")
            case TimeoutError():
                return far.silent(self._silence_seconds)
            case ValueError():  # InvalidURL is one
                return far.broken("cannot be sent this request")
            case aiohttp.ClientPayloadError():
                return far.lost(f"{far.name} broke off in the middle of its answer")
            case aiohttp.ClientResponseError():
                return far.broken("did not answer in HTTP")
            case _:
                return far.lost(f"{far.name} closed the connection before it answered")

    async def _post(
        self, path: str, payload: bytes, headers: Mapping[str, str], *, far: FarEnd, until: float
    ) -> aiohttp.ClientResponse:
        import aiohttp

        now = asyncio.get_running_loop().time
        while True:
            used = SimpleNamespace(kept=False)
            sent = now()
            try:
                response = await self._get_session().post(
                    self._root + path,
                    data=payload,
                    headers={"Content-Type": "application/json", **headers},
                    allow_redirects=False,
                    timeout=self._patience(max(0.1, until - sent)),
                    trace_request_ctx=used,
                )
                break
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                was_idle = used.kept and now() - sent < _SHOWS_WITHIN_SECONDS
                if not was_idle or not was_closed(error):
                    raise self.fault(error, far) from error
        if response.status < 300:
            return response
        try:
            async with asyncio.timeout(_ERROR_BODY_SECONDS):
                body = await read_at_most(response.content, _ERROR_BODY_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError):
            body = b""  # the status alone says enough
        finally:
            response.close()
        raise far.status(response.status, response.headers, body)

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            trace = aiohttp.TraceConfig()
            trace.on_connection_reuseconn.append(_note_kept)
            self._session = kept_session(
                self.shown, headers={}, timeout=self._patience(_CONNECT_SECONDS), traces=[trace]
            )
        return self._session

    def _patience(self, connect: float) -> aiohttp.ClientTimeout:
        import aiohttp

        return aiohttp.ClientTimeout(
            total=None, connect=connect, sock_read=self._silence_seconds or None
        )


async def _note_kept(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    params: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.kept = True
