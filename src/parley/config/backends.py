"""Settings of who answers."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from parley.config.fields import Seconds, Section

__all__ = ["AGENT_WS_VARIABLE", "BackendName", "DirectSettings"]

AGENT_WS_VARIABLE: Final = "AGENT_WS_URL"

BackendName: TypeAlias = Literal["agent", "proxy", "direct", "mock"]


def _blank_is_unset(value: object) -> object:
    return value.strip() or None if isinstance(value, str) else value


def _socket_address(value: str | None) -> str | None:
    from parley.config.proxy import socket_fault

    fault = None if value is None else socket_fault(value)
    if fault is not None:
        raise PydanticCustomError(fault, "wants the address of an agent")
    return value


SocketAddress = Annotated[
    str | None, BeforeValidator(_blank_is_unset), AfterValidator(_socket_address)
]


class DirectSettings(Section):
    """A remote agent that answers over a WebSocket; its key is `AGENT_WS_KEY` in `.env`."""

    url: SocketAddress = Field(
        default=None, description="its address, such as ws://host:8642/agent_ws/"
    )
    timeout_seconds: Seconds = Field(
        default=30.0, description="longest silence while it answers; 0: any"
    )
