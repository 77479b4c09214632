"""The address of a remote agent: how it may be written, and what is wrong with one."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

__all__ = [
    "PROXY_URL_VARIABLE",
    "AddressFault",
    "address_fault",
    "clean_address",
    "socket_fault",
]

PROXY_URL_VARIABLE: Final = "GATEWAY_PROXY_URL"

AddressFault: TypeAlias = Literal["web_address", "bare_address"]
"""`web_address`: it is none. `bare_address`: it holds what may be a secret."""

SocketFault: TypeAlias = Literal["socket_address", "bare_socket"]
"""The same of the address of a WebSocket."""

_NOT_IN_AN_ADDRESS: Final = frozenset(' "<>\\^`{|}')


def clean_address(text: str) -> str | None:
    """An address as it was meant: without space around it or a slash at its end; blank is none."""
    return text.strip().rstrip("/") or None


def address_fault(address: str) -> AddressFault | None:
    """Why no agent can be reached at `address`; None when one can."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return "bare_address" if "@" in address else "web_address"
    # `:` in `http://name:p/w@host` ends up as a port that is none, `@` then in the path.
    if "@" in address or parts.query or parts.fragment or address.endswith(("?", "#")):
        return "bare_address"
    is_web = parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0
    return None if is_web and _is_plain(address) else "web_address"


def socket_fault(address: str) -> SocketFault | None:
    """Why no agent can be reached by a WebSocket at `address`; it may have a query."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return "bare_socket" if "@" in address else "socket_address"
    if "@" in parts.netloc or parts.fragment or address.endswith("#"):
        return "bare_socket"
    known = parts.scheme in {"ws", "wss", "http", "https"} and bool(parts.hostname) and port != 0
    return None if known and _is_plain(address) else "socket_address"


def _is_plain(address: str) -> bool:
    return address.isascii() and address.isprintable() and not set(address) & _NOT_IN_AN_ADDRESS
