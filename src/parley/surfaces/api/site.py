"""The listening socket, and what each connection of it may cost. Imports aiohttp: load it late."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import http_exceptions, web

from parley.surfaces.api.connection_limits import ConnectionTable, address_group
from parley.surfaces.api.edge import fortify, new_request_id
from parley.surfaces.api.errors import ApiError, error_response

if TYPE_CHECKING:
    from parley.surfaces.api.tls import CertificateFiles

__all__ = ["Site", "SiteLimits", "open_site"]

_log = logging.getLogger("parley.api")

_MOST_FILES: Final = 65_536
_FILES_FOR_US: Final = 128
_SEND_BUFFER: Final = 256 * 1024
"""What the system may hold for a client that does not read; it would hold megabytes otherwise."""
_LET_GO: Final = 2.0


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """What clients may take their time for, and how many of them there may be."""

    connections: int = 2000
    local_reserve: int = 100
    """Of these, how many are for this machine alone."""
    anonymous_per_address: int = 64
    """Connections of one address that have shown no key; what is above goes after a second."""
    header_seconds: float = 15.0
    """For the request line and the headers, from the first byte, or from the connection's start."""
    idle_seconds: float = 75.0
    """Between two requests."""
    stalled_seconds: float = 60.0
    """A client that takes none of what waits for it is let go."""
    line_bytes: int = 8190
    headers: int = 128


class Site:
    """An application that is being served."""

    def __init__(
        self, runner: web.AppRunner, listening: asyncio.Server, door: ConnectionTable
    ) -> None:
        self._runner = runner
        self._listening = listening
        self._door = door

    @property
    def port(self) -> int:
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        return len(self._door.open)

    async def close(self, grace: float) -> None:
        """Take no more; requests may end within `grace` seconds, and are cancelled then."""
        self._listening.close()
        # Who has sent a request just now is still answered.
        await asyncio.sleep(0)
        for each in self._connections():
            each.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._door.empty()
        tasks = [task for each in self._door.open if (task := each.work) is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LET_GO)
        await self._runner.cleanup()
        self._door.close()

    def _connections(self) -> list[_Connection]:
        return [each for each in self._door.open if isinstance(each, _Connection)]


async def open_site(
    app: web.Application,
    host: str,
    port: int,
    *,
    limits: SiteLimits | None = None,
    certificate: CertificateFiles | None = None,
) -> Site:
    """Serve the application there, by TLS where there is a certificate.

    Raises `OSError` when the address cannot be had.
    """
    limits = limits or SiteLimits()
    loop = asyncio.get_running_loop()
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=_LET_GO / 20
    )
    await runner.setup()
    server = runner.server
    assert server is not None
    door = ConnectionTable(min(limits.connections, _affordable()), limits)
    options: dict[str, Any] = {
        "access_log": None,
        # A body is taken as it comes: what unpacks to more than it says is nobody's message.
        "auto_decompress": False,
        "keepalive_timeout": limits.idle_seconds,
        "max_line_size": limits.line_bytes,
        "max_field_size": limits.line_bytes,
        "max_headers": limits.headers,
    }

    def connect(handshake: _Handshake | None = None) -> _Connection:
        return _Connection(server, door, handshake, loop=loop, **options)

    def greet() -> asyncio.Protocol:
        return connect() if certificate is None else _Handshake(door, certificate, connect)

    try:
        listening = await loop.create_server(greet, host, port, backlog=1024)
    except OSError:
        await runner.cleanup()
        raise
    return Site(runner, listening, door)


def _affordable() -> int:
    """How many connections the limit on open files allows, each with one to a model beside it."""
    try:
        import resource
    except ImportError:
        return _MOST_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return _MOST_FILES
    return max(8, (soft - _FILES_FOR_US) // 2)


class _Handshake(asyncio.Protocol):
    """A client that is to speak TLS. It is counted from here on: a handshake may never come."""

    def __init__(
        self,
        door: ConnectionTable,
        certificate: CertificateFiles,
        connect: Callable[[_Handshake], _Connection],
    ) -> None:
        self._door = door
        self._certificate = certificate
        self._connect = connect
        self.work: asyncio.Task[None] | None = None

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        # What asyncio does of itself calls nobody before the handshake is done. So the socket is
        # taken over, by a copy, before anything is read from it.
        transport = cast("asyncio.Transport", made)
        peer = transport.get_extra_info("peername")
        if self._door.enter(self, address_group(peer[0] if peer else "")):
            sock = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
            sock.setblocking(False)
            self.work = asyncio.get_running_loop().create_task(self._shake_hands(sock))
        transport.close()

    async def _shake_hands(self, sock: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._connect(self),
                sock,
                ssl=self._certificate.context(),
                ssl_handshake_timeout=self._door.limits.header_seconds,
                ssl_shutdown_timeout=_LET_GO,
            )
        except (OSError, asyncio.CancelledError):  # it speaks no TLS, leaves, or is let go
            sock.close()
        finally:
            self._door.leave(self)

    def look(self, now: float) -> None:
        """The handshake has its own time-out."""

    def abort(self) -> None:
        if self.work is not None:
            self.work.cancel()


class _Connection(web.RequestHandler):
    """aiohttp's, which has no limit on the time that headers take, nor on who never reads."""

    __slots__ = (
        *("_door", "_handshake", "_head_since", "_stuck", "_stuck_since", "_trusted", "_wire"),
        "work",
    )

    def __init__(
        self,
        server: web.Server,
        door: ConnectionTable,
        handshake: _Handshake | None,
        **options: Any,
    ) -> None:
        super().__init__(server, **options)
        self._door = door
        self._handshake = handshake
        self._wire: asyncio.Transport | None = None
        self._trusted = False
        self._head_since: float | None = None
        self._stuck = 0
        self._stuck_since = 0.0
        self.work: asyncio.Task[None] | None = None

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", made)  # uvloop's is one by its methods alone
        if self._handshake is not None:
            self._door.leave(self._handshake)
        peer = transport.get_extra_info("peername")
        if not self._door.enter(self, address_group(peer[0] if peer else "")):
            transport.write(_FULL)
            transport.close()
            return
        self._wire = transport
        self._head_since = self._loop.time()
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        super().connection_made(transport)
        self.work = self._task_handler

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._wire is None:
            return
        self._wire = None
        self._door.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._wire is None:
            return
        # A waiter that is done has its request: what comes now is more of that one's body.
        waiter = self._waiter
        waits = (waiter is not None and not waiter.done()) or self._request_count == 0
        before = self._request_count
        super().data_received(data)
        if self._request_count != before:
            self._head_since = None
        elif waits and data and self._head_since is None:
            self._head_since = self._loop.time()

    def look(self, now: float) -> None:
        """Let the client go when it takes too long for its headers, or takes nothing."""
        limits = self._door.limits
        if self._head_since is not None and now - self._head_since > limits.header_seconds:
            self._head_since = None
            self.force_close()
        wire = self._wire
        if wire is None:
            return
        unsent = wire.get_write_buffer_size()
        if unsent == 0 or unsent < self._stuck or self._stuck == 0:
            self._stuck_since = now
        elif now - self._stuck_since > limits.stalled_seconds:
            wire.abort()
        self._stuck = unsent

    def trust(self) -> None:
        """A request on it showed a key that counts."""
        if not self._trusted:
            self._trusted = True
            self._door.trust(self)

    def finish(self) -> None:
        """No request after the one that is being answered."""
        if self._waiter is not None:
            self.force_close()
        else:
            self.close()

    def abort(self) -> None:
        if self._wire is not None:
            self._wire.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP, or went wrong outside of the application's own edge."""
        name = new_request_id()
        if status >= 500:
            _log.error("A request failed", exc_info=exc, extra={"request_id": name})
            error = ApiError(status, f"Something went wrong here; the log tells more under {name}.")
        elif isinstance(exc, http_exceptions.LineTooLong):
            error = ApiError(431, "The request line or a header is too long.")
        else:
            error = ApiError.bad_request("This is not an HTTP request as it must be.")
        if request.writer.output_size > 0:
            raise ConnectionError("A response has begun already.")
        response = error_response(error)
        fortify(response.headers, name)
        # Aiohttp would name itself and its version.
        response.headers["Server"] = "parley"
        response.headers["Connection"] = "close"
        response.force_close()
        return response


def _refusal(error: ApiError) -> bytes:
    body = json.dumps(error.as_body()).encode()
    return (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%b" % (len(body), body)
    )


_FULL: Final = _refusal(ApiError.unavailable("Too many connections are open; please try again."))
