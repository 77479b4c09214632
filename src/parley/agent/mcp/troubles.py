"""What kept a server from serving, in a sentence."""

from __future__ import annotations

import httpx2
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

from parley.agent.mcp.limits import McpLimits
from parley.agent.mcp.plan import Plan
from parley.agent.mcp.signals import Ended, Signals

__all__ = ["trouble"]


def trouble(error: BaseException, plan: Plan, signals: Signals, limits: McpLimits) -> str:
    """Of an error in whatever part: ours, the library's, or the system's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if signals.refused in {401, 403}:
        return f"{plan.address} does not take the token (HTTP {signals.refused})."
    if isinstance(error, Ended):
        return str(error)
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return f"Nobody answers at {plan.address}."
    if isinstance(error, TimeoutError):
        return f"It did not answer within {limits.begin:g} s."
    if isinstance(error, MCPError) and error.error.code == CONNECTION_CLOSED:
        return signals.over.result() if signals.over.done() else "The connection was closed."
    if isinstance(error, MCPError):
        status = f" (HTTP {signals.refused})" if signals.refused else ""
        return f"It refused{status}: {error.error.message.rstrip('.')}."
    if isinstance(error, OSError):
        return f"It cannot be started ({error.strerror or type(error).__name__})."
    return f"It cannot be used ({type(error).__name__})."
