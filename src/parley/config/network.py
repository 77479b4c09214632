"""How the gateway is reached from other machines: its public address, names, proxies and TLS."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from parley.config.fields import Section

__all__ = ["HostName", "ProxyNetwork", "PublicUrl", "TlsSettings"]


def _clean(value: object) -> object:
    from parley.config.proxy import clean_address

    return clean_address(value) if isinstance(value, str) else value


def _public_url(value: str | None) -> str | None:
    from parley.config.proxy import address_fault

    if value is not None and address_fault(value) is not None:
        raise PydanticCustomError("public_address", "wants a web address")
    return value


def _host_name(value: str) -> str:
    from parley.config.hosts import named_host

    if (found := named_host(value)) is None:
        raise PydanticCustomError("host_name", "wants a host")
    return found


def _network(value: str) -> str:
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError as error:
        raise PydanticCustomError("network_address", "wants an address") from error
    return value


PublicUrl = Annotated[str | None, BeforeValidator(_clean), AfterValidator(_public_url)]
HostName = Annotated[str, AfterValidator(_host_name)]
ProxyNetwork = Annotated[str, AfterValidator(_network)]


class TlsSettings(Section):
    """HTTPS by certificate files. They are read again when they change."""

    certificate: str | None = Field(
        default=None,
        description="a PEM file: the certificate, then its chain; a relative path is of the home",
    )
    key: str | None = Field(
        default=None,
        description="a PEM file: the private key, without a password; the same file if unset",
    )
