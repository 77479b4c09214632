"""Addresses and origins as settings name them. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

__all__ = ["is_loopback", "is_origin"]

_ORIGIN: Final = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?/?")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_origin(text: str) -> bool:
    """Whether a browser could send it as `Origin`: a scheme, a host, perhaps a port."""
    return _ORIGIN.fullmatch(text) is not None
