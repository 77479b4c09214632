"""Hosts, addresses and origins as settings and requests name them. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

__all__ = [
    "canonical_host",
    "is_loopback",
    "is_loopback_host",
    "is_origin",
    "is_wildcard",
    "named_host",
    "parse_address",
    "url_host",
    "url_origin",
]

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_ORIGIN: Final = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?/?")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{0,5})?")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether a server there listens on every address of the machine."""
    address = parse_address(host)
    return not host or (address is not None and address.is_unspecified)


def is_origin(text: str) -> bool:
    """Whether a browser could send it as `Origin`: a scheme, a host, perhaps a port."""
    return _ORIGIN.fullmatch(text) is not None


def parse_address(text: str) -> IpAddress | None:
    """The IP address, without brackets or zone; an IPv4 address inside IPv6 is the IPv4 one."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def canonical_host(header: str) -> str | None:
    """The host of a `Host` header in the one form to compare; None when it is none.

    Lower case, without the port, a trailing dot or brackets; an address as Python writes it.
    """
    found = _HOST.fullmatch(header.strip())
    if found is None:
        return None
    name = found[1].lower().removesuffix(".")
    address = parse_address(name)
    return name or None if address is None else str(address)


def named_host(text: str) -> str | None:
    """The same of what a person wrote down: an IPv6 address may stand without brackets."""
    address = parse_address(text)
    return canonical_host(text) if address is None else str(address)


def is_loopback_host(host: str) -> bool:
    """Whether a canonical host names this machine alone. No DNS answer can change that."""
    address = parse_address(host)
    return host == "localhost" if address is None else address.is_loopback


def url_host(url: str) -> str | None:
    """The canonical host of a web address."""
    return named_host(urlsplit(url).hostname or "")


def url_origin(url: str) -> str:
    """The origin of a web address, as browsers send it: without its scheme's usual port."""
    parts = urlsplit(url.lower())
    implied = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return f"{parts.scheme}://{parts.netloc.removesuffix(implied) if implied else parts.netloc}"
