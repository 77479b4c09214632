"""The way out: answers are posted to the address a program gave."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from parley import __version__
from parley.protocol import ParleyError
from parley.surfaces.base import NotSent, Rejected

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Callback"]

_CONNECT_SECONDS = 10.0
_TOTAL_SECONDS = 30.0
_MOST_CONNECTIONS = 100
_REPLY_BYTES = 64 * 1024
_LONGEST_WAIT = 3600.0
_LONGEST_ID = 200


class Callback:
    """One address. The session is made at the first answer and kept until `close`.

    Sentences name its host alone: the rest of the address may hold a secret.
    """

    def __init__(self, url: str, token: str) -> None:
        self._host = _host_of(url)
        self._url = url
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"parley/{__version__}",
        }
        self._session: aiohttp.ClientSession | None = None

    async def post(self, answer: bytes) -> str | None:
        """The id that the program gave it, if any; raises `NotSent` or `Rejected`."""
        import aiohttp

        try:
            async with self._get_session().post(
                self._url, data=answer, allow_redirects=False
            ) as response:
                self._judge(response.status, response.headers)
                return await _given_id(response)
        except TimeoutError as error:
            raise NotSent(f"The callback at {self._host} did not answer in time.") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NotSent(f"The callback at {self._host} cannot be reached.") from error

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _judge(self, status: int, headers: Mapping[str, str]) -> None:
        if 200 <= status < 300:
            return
        said = f"The callback at {self._host} answered {status}"
        if 300 <= status < 400:
            raise NotSent(f"{said}: set `surfaces.webhook.callback_url` to where that leads.")
        if status in {408, 429} or status >= 500:
            raise NotSent(f"{said}.", after=_wait_of(headers.get("Retry-After", "")))
        raise Rejected(f"{said}.")

    def _get_session(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=_TOTAL_SECONDS, sock_connect=_CONNECT_SECONDS),
            )
        return self._session


def _host_of(url: str) -> str:
    """The host and port of a web address; raises for anything else."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not url.isprintable():
        raise ParleyError(
            "The callback of the webhook is not a web address: set `surfaces.webhook.callback_url` "
            "to one that begins with http:// or https://."
        )
    if parts.username is not None or parts.password is not None:
        raise ParleyError(
            "The callback of the webhook holds a name or password: take it out of "
            "`surfaces.webhook.callback_url`; the program knows us by WEBHOOK_TOKEN."
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host if port is None else f"{host}:{port}"


def _wait_of(text: str) -> float | None:
    """How long a `Retry-After` asks us to wait, within reason; None when it does not say."""
    seconds = _seconds_of(text)
    return None if math.isnan(seconds) else min(max(seconds, 1.0), _LONGEST_WAIT)


def _seconds_of(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError):
        return math.nan


async def _given_id(response: aiohttp.ClientResponse) -> str | None:
    """The `id` in the JSON of a reply. The answer has arrived, whatever else is in there."""
    import aiohttp

    body = bytearray()
    try:
        while piece := await response.content.read(_REPLY_BYTES):
            body += piece
            if len(body) > _REPLY_BYTES:
                return None
        reply = json.loads(body)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, RecursionError):
        return None
    given = reply.get("id") if isinstance(reply, dict) else None
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if isinstance(given, str) and 0 < len(given) <= _LONGEST_ID and given.isprintable():
        return given
    return None
