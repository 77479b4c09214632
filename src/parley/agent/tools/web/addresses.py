"""Which network addresses belong to the open internet. All others are out of a page's reach."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

__all__ = ["is_ours", "is_public"]

# The registries of special addresses in full: what the standard library knows of them differs
# from one Python to the next.
_SPECIAL_4: Final = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # what a machine at Azure is told about itself
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_OPEN_6: Final = IPv6Network("2000::/3")
_SPECIAL_6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # Teredo and other protocols
        "2001:db8::/32",
        "2002::/16",  # 6to4 holds an IPv4 address of anybody's choice
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Whether this address, as a resolver writes it, is one of the open internet."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return _is_public_4(address)
    return _is_public_6(address)


def is_ours(text: str) -> bool:
    """Whether this is an address of this very machine, however public: no firewall is between."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        # Nothing is sent: the system only says from where it would, and that is the same address.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((text, 9))
            return ip_address(probe.getsockname()[0]) == ip_address(text)
    except (OSError, ValueError):
        return False


def _is_public_4(address: IPv4Address) -> bool:
    return address.is_global and not any(address in network for network in _SPECIAL_4)


def _is_public_6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    if address in _NAT64:  # how a network without IPv4 reaches it
        return _is_public_4(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address not in _OPEN_6 or not address.is_global:
        return False
    return not any(address in network for network in _SPECIAL_6)
