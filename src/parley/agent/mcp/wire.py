"""What a server sends, looked at before the library does: one bad tool must not cost the others."""

from __future__ import annotations

from typing import Any, Final

from mcp_types import JSONRPCMessage, JSONRPCResponse
from mcp_types.methods import validate_server_result

from parley.agent.foreign import one_line
from parley.agent.mcp.signals import Signals

__all__ = ["spare_tools"]

_MOST_LOOKED_AT: Final = 512
_MOST_NAMED: Final = 20
_METHOD: Final = "tools/list"
_VERSION: Final = "2025-11-25"


def spare_tools(message: JSONRPCMessage, signals: Signals) -> None:
    """Take the tools out of a list that would make the whole list be refused; note their names."""
    if not isinstance(message, JSONRPCResponse):
        return
    tools = message.result.get("tools")
    if isinstance(tools, list):
        looked_at = tools[:_MOST_LOOKED_AT]
        message.result["tools"] = [tool for tool in looked_at if _is_sound(tool, signals)]


def _is_sound(tool: Any, signals: Signals) -> bool:
    try:
        validate_server_result(_METHOD, _VERSION, {"tools": [tool]})
    except (ValueError, KeyError, RecursionError):
        name = tool.get("name") if isinstance(tool, dict) else None
        if len(signals.left_out) < _MOST_NAMED:
            signals.left_out.add(one_line(name, longest=64) if isinstance(name, str) else "?")
        return False
    return True
