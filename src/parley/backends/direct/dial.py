"""The way to a remote agent: its address, the handshake, and the errors of both."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_plus, urlsplit, urlunsplit

from parley.agent.providers.connections import kept_session
from parley.backends.direct.faults import FarAgent, PlatformError
from parley.backends.direct.frames import LARGEST_FRAME
from parley.backends.direct.line import Line
from parley.config.errors import ConfigError
from parley.config.proxy import socket_fault

if TYPE_CHECKING:
    import aiohttp

__all__ = ["AgentSessionConfig", "Dialer", "thread_url"]

_CONNECT_SECONDS: Final = 10.0
_WEB_SCHEMES: Final = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
_SHOWN_SCHEMES: Final = {"http": "ws", "https": "wss"}


@dataclass(frozen=True, slots=True)
class AgentSessionConfig:
    """Where an agent is. `timeout_seconds` is its longest silence while it answers; 0: any."""

    base_ws_url: str
    timeout_seconds: float = 30.0
    key: str | None = field(default=None, repr=False)
    heartbeat_seconds: float = 20.0


def thread_url(base_ws_url: str, thread_key: str) -> str:
    """The address for one thread, for HTTP: what else its query holds is left as it is."""
    parts = urlsplit(base_ws_url)
    kept = [pair for pair in parts.query.split("&") if pair and not _names_thread(pair)]
    pair = f"thread_id={quote(thread_key, safe='', errors='surrogatepass')}"
    query = "&".join([*kept, pair])
    scheme = _WEB_SCHEMES[parts.scheme]
    return urlunsplit(parts._replace(scheme=scheme, path=parts.path or "/", query=query))


def _names_thread(pair: str) -> bool:
    return unquote_plus(pair.partition("=")[0]) == "thread_id"


class Dialer:
    """Opens lines to one agent, by one session.

    The session is there as long as a line is open; one that is `lasting`, until `close`.
    """

    def __init__(self, config: AgentSessionConfig, *, lasting: bool = False) -> None:
        if socket_fault(config.base_ws_url) is not None:
            raise ConfigError(
                "The address of the direct agent cannot be used: set `direct.url` to one that "
                "begins with ws:// or wss:// and holds no name, password or `#`."
            )
        parts = urlsplit(config.base_ws_url)
        scheme = _WEB_SCHEMES[parts.scheme]
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        place = f"{host}{'' if parts.port is None else f':{parts.port}'}"
        self.shown = f"{_SHOWN_SCHEMES[scheme]}://{place}"
        self.silence = config.timeout_seconds or None
        self._web = f"{scheme}://{place}"
        self._config = config
        self._lasting = lasting
        self._session: aiohttp.ClientSession | None = None
        self._users = 0

    def far(self, key: str | None) -> FarAgent:
        return FarAgent(self.shown, key)

    async def dial(
        self, thread_key: str, *, key: str | None = None, hops: int | None = None
    ) -> Line:
        """A line on which the agent has said what it knows; raises `PlatformError`."""
        far = self.far(key)
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise far.wrong_key()
        self._users += 1
        try:
            line = await self._open(thread_key, far, hops)
        except BaseException:
            await self._leave()
            raise
        try:
            await line.greet()
        except BaseException:
            await line.close()
            raise
        return line

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _open(self, thread_key: str, far: FarAgent, hops: int | None) -> Line:
        import aiohttp
        from yarl import URL

        headers = {"Authorization": f"Bearer {far.key}"} if far.key else {}
        if hops is not None:
            headers["X-Parley-Hops"] = str(hops)
        address = URL(thread_url(self._config.base_ws_url, thread_key), encoded=True)
        try:
            async with asyncio.timeout(self.silence):
                socket = await self._get_session().ws_connect(
                    address,
                    headers=headers,
                    heartbeat=self._config.heartbeat_seconds or None,
                    max_msg_size=LARGEST_FRAME,
                )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _fault(error, far, self._config.timeout_seconds) from error
        return Line(socket, far, silence=self.silence, on_gone=self._leave)

    async def _leave(self) -> None:
        self._users -= 1
        if not self._users and not self._lasting:
            await self.close()

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            import aiohttp

            patience = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS)
            self._session = kept_session(self._web, headers={}, timeout=patience)
        return self._session


def _fault(error: Exception, far: FarAgent, silence: float) -> PlatformError:
    import aiohttp

    match error:
        case aiohttp.WSServerHandshakeError(status=status):
            return far.handshake(status)
        case aiohttp.ClientConnectorDNSError():
            return far.unreachable("its name is not known; check `direct.url`")
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return far.unreachable(
                "its certificate or its TLS is not as it should be; check `direct.url` and this "
                "machine's clock"
            )
        case aiohttp.ConnectionTimeoutError():
            return far.unreachable("no connection within 10 s; check the network connection")
        case aiohttp.ClientConnectorError():
            return far.unreachable("start the agent there, or check `direct.url`")
        case TimeoutError():
            return far.silent(silence)
        case aiohttp.ClientResponseError() | ValueError():
            return far.broken("did not answer as a WebSocket does")
        case _:
            return far.closed(None)
