"""Fetches one page: hop by hop, each one vetted, within limits of size and time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from parley.agent.foreign import clean, fenced, one_line
from parley.agent.tools.base import ToolError
from parley.agent.tools.web.content import Page, decode, kind_of, read_page
from parley.agent.tools.web.destination import (
    Destination,
    Resolve,
    destination_of,
    resolve_name,
    vet,
)
from parley.agent.tools.web.html_page import plain_text
from parley.config.hands import WebSettings

if TYPE_CHECKING:
    from ssl import SSLContext

    import aiohttp

__all__ = ["Fetched", "Fetcher"]

_HOPS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_ENCODINGS: Final = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})
_ERROR_BYTES: Final = 65_536
_ERROR_CHARACTERS: Final = 500
_READERS: Final = 2
_LONGEST_READING: Final = 10.0


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page and where it was found in the end."""

    address: str
    page: Page


@dataclass(frozen=True, slots=True)
class _Answer:
    address: str
    content_type: str
    charset: str | None
    body: bytes


class Fetcher:
    """`resolve` finds the addresses of names; `tls` is what certificates are checked with."""

    def __init__(
        self,
        settings: WebSettings,
        *,
        resolve: Resolve = resolve_name,
        tls: SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._resolve = resolve
        self._tls = tls
        self._most = settings.fetch_mb * 1_000_000
        self._readers = asyncio.Semaphore(_READERS)

    async def fetch(self, url: str) -> Fetched:
        seconds = self._settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                answer = await self._follow(url)
                return Fetched(answer.address, await self._read(answer))
        except TimeoutError as error:
            raise ToolError(f"The page took longer than {seconds:g} s.") from error

    async def _follow(self, url: str) -> _Answer:
        destination = destination_of(url, self._settings.allow)
        for _ in range(_HOPS + 1):
            step = await self._ask(destination)
            if isinstance(step, _Answer):
                return step
            destination = step
        raise ToolError(f"The page was redirected more than {_HOPS} times.")

    async def _ask(self, destination: Destination) -> _Answer | Destination:
        """One request: an answer, or where to ask next."""
        import aiohttp

        from parley.agent.tools.web.connection import pinned_session

        host = destination.host
        vetted = await vet(destination, self._resolve)
        try:
            async with (
                pinned_session(vetted, self._tls) as session,
                session.get(destination.url, allow_redirects=False) as response,
            ):
                if response.status in _REDIRECTS and "Location" in response.headers:
                    return self._next(destination, response.headers["Location"])
                return await self._take(destination, response)
        except aiohttp.ClientConnectorCertificateError as error:
            raise ToolError(f"The certificate of {host} is not valid.") from error
        except (aiohttp.ClientConnectionError, OSError) as error:
            raise ToolError(f"{host} could not be reached, or broke off.") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise ToolError(f"{host} sent an answer that cannot be read.") from error

    def _next(self, destination: Destination, location: str) -> Destination:
        from yarl import URL

        try:
            target = destination.url.join(URL(location))
        except ValueError as error:
            raise ToolError(f"{destination.host} redirects to what is no URL.") from error
        return destination_of(target, self._settings.allow)

    async def _take(self, destination: Destination, response: aiohttp.ClientResponse) -> _Answer:
        if response.headers.get("Content-Encoding", "").strip().lower() not in _ENCODINGS:
            raise ToolError(f"{destination.host} packed its answer in a way that is not read.")
        if response.status >= 300:
            raise ToolError(await self._refusal(destination, response))
        has_type = "Content-Type" in response.headers
        content_type = response.content_type.lower() if has_type else ""
        address = str(destination.url)
        if has_type and kind_of(content_type, b"") == "other":
            length = response.content_length
            size = f"{length:,} bytes" if length is not None else "of unknown size"
            text = f"(no text: {one_line(content_type, 80)}, {size})"
            return _Answer(address, "text/plain", "utf-8", text.encode())
        if (response.content_length or 0) > self._most:
            raise self._too_large()
        body = await _read(response, self._most + 1)
        if len(body) > self._most:
            raise self._too_large()
        return _Answer(address, content_type, response.charset, body)

    async def _refusal(self, destination: Destination, response: aiohttp.ClientResponse) -> str:
        try:
            phrase = f" {HTTPStatus(response.status).phrase}"
        except ValueError:
            phrase = ""
        told = f"{destination.host} answered {response.status}{phrase}."
        body = await _read(response, _ERROR_BYTES)
        if kind_of(response.content_type.lower(), body) == "other":
            return told
        text = plain_text(decode(body, response.charset, html=True))
        beginning = clean(text)[:_ERROR_CHARACTERS].strip()
        return f"{told}\n{fenced('answer', beginning)}" if beginning else told

    async def _read(self, answer: _Answer) -> Page:
        kind = kind_of(answer.content_type, answer.body[:1024])
        if kind == "other":
            return Page("", f"(no text: {len(answer.body):,} bytes of an unknown type)")
        html = kind == "html"
        text = await asyncio.to_thread(decode, answer.body, answer.charset, html=html)
        if not html:
            return Page("", await asyncio.to_thread(clean, text))
        seconds = min(_LONGEST_READING, self._settings.timeout_seconds / 3)
        async with self._readers:
            return await read_page(text, answer.address, seconds=seconds)

    def _too_large(self) -> ToolError:
        return ToolError(f"The page is larger than {self._settings.fetch_mb} MB.")


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """At most so many bytes, counted after they were unpacked."""
    body = bytearray()
    while len(body) < most and (piece := await response.content.read(most - len(body))):
        body += piece
    return bytes(body)
