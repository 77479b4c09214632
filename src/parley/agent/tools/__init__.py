"""What the built-in agent can do with its hands: see `parley.agent.toolbox` for all of it."""

from __future__ import annotations

from typing import Any

from parley.agent.tools.base import Tool, ToolContext, ToolError, ToolResult, Wanted, tool
from parley.agent.tools.clock import now

__all__ = ["TOOLS", "Tool", "ToolContext", "ToolError", "ToolResult", "Wanted", "tool"]

TOOLS: dict[str, Tool[Any]] = {now.name: now}
"""Tools that stand by themselves; one more is one more entry, before a gateway starts."""
