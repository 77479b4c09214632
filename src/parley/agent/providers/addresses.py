"""Which addresses are at home: this machine, or the private network around it."""

from __future__ import annotations

__all__ = ["is_nearby"]


def is_nearby(address: str) -> bool:
    """Whether `address` is on this machine or a private network, where servers need no key."""
    import ipaddress
    from urllib.parse import urlsplit

    host = (urlsplit(address).hostname or "").lower().rstrip(".")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        # A name without a dot is found only in the local network (a container, a neighbour).
        return bool(host) and ("." not in host or host.endswith((".localhost", ".local")))
    return ip.is_loopback or ip.is_private
