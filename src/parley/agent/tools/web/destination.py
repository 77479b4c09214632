"""Where a fetch goes: the URL read once and strictly, and the addresses it may connect to."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final, TypeAlias

from parley.agent.tools.base import ToolError
from parley.agent.tools.web.addresses import is_ours, is_public

if TYPE_CHECKING:
    from yarl import URL

__all__ = ["Destination", "Resolve", "Vetted", "destination_of", "resolve_name", "vet"]

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, as text."""

_LONGEST_URL: Final = 4000
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_FIRST_FREE_PORT: Final = 1024


@dataclass(frozen=True, slots=True)
class Destination:
    """A URL that may be tried. `host` is in its plain form; `allowed`: the operator named it."""

    url: URL
    host: str
    port: int
    allowed: bool


@dataclass(frozen=True, slots=True)
class Vetted:
    """A destination and the only addresses a connection to it may be made to."""

    destination: Destination
    addresses: tuple[str, ...]


def destination_of(text: str | URL, allow: Iterable[str]) -> Destination:
    """Read a URL; one that is not plainly a web address is refused with a sentence."""
    from yarl import URL

    written = str(text).strip()
    if len(written) > _LONGEST_URL:
        raise ToolError(f"The URL is longer than {_LONGEST_URL} characters.")
    if _CONTROL.search(written):
        raise ToolError("A URL cannot hold control characters.")
    try:
        url = URL(written)
        scheme, host, port = url.scheme, url.raw_host, url.port
    except ValueError as error:
        raise ToolError("That is no URL; write it like https://example.org/page.") from error
    if scheme not in {"http", "https"} or not host or not port:
        raise ToolError("Only http and https URLs are fetched, such as https://example.org/page.")
    if url.raw_user is not None or url.raw_password is not None:
        raise ToolError("A URL with a user name or password in it is not fetched.")
    host = _plain_host(host)
    allowed = _is_allowed(host, port, allow)
    if not allowed and port < _FIRST_FREE_PORT and port not in {80, 443}:
        raise ToolError(f"Port {port} is not one of the web's.")
    return Destination(url.with_host(host).with_fragment(None), host, port, allowed)


async def vet(destination: Destination, resolve: Resolve) -> Vetted:
    """Resolve the host, once, and refuse it unless every address is of the open internet."""
    host = destination.host
    addresses = (host,) if _is_literal(host) else await _addresses(destination, resolve)
    if not destination.allowed and not all(_is_open(address) for address in addresses):
        raise ToolError(
            f"{host} is not on the open internet, so it is not fetched; "
            "an operator can allow it in the setting `web.allow`."
        )
    return Vetted(destination, addresses)


def _is_open(address: str) -> bool:
    return is_public(address) and not is_ours(address)


async def resolve_name(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def _addresses(destination: Destination, resolve: Resolve) -> tuple[str, ...]:
    try:
        found = await resolve(destination.host, destination.port)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"No address was found for {destination.host}.") from error
    if not found:
        raise ToolError(f"No address was found for {destination.host}.")
    return tuple(dict.fromkeys(found))


def _plain_host(host: str) -> str:
    """The one form of a host; the many other ways to write an address are refused."""
    host = host.lower().removesuffix(".")
    try:
        if ":" in host:
            address = IPv6Address(host)
            if address.scope_id is None:
                return str(address)
            raise ToolError("An address with a zone in it is not fetched.")
        if _NUMBER.fullmatch(host.rpartition(".")[2]):
            return str(IPv4Address(host))
    except AddressValueError as error:
        raise ToolError("Write an address in its plain form, such as 192.0.2.1.") from error
    if not _NAME.fullmatch(host):
        raise ToolError("The URL's host is no name; write it like https://example.org/page.")
    return host


def _is_literal(host: str) -> bool:
    return ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def _is_allowed(host: str, port: int, allow: Iterable[str]) -> bool:
    shown = f"[{host}]" if ":" in host else host
    names = {host, shown, f"{shown}:{port}"}
    return any(entry.strip().lower() in names for entry in allow)
