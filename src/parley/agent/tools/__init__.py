"""What the built-in agent can do with its hands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from parley.agent.tools.base import Tool, ToolContext, ToolError, ToolResult
from parley.agent.tools.clock import now
from parley.agent.tools.files import read_file
from parley.protocol import ParleyError

__all__ = ["TOOLS", "Tool", "ToolContext", "ToolError", "ToolResult", "pick_tools"]

TOOLS: dict[str, Tool[Any]] = {tool.name: tool for tool in (now, read_file)}


def pick_tools(names: Iterable[str]) -> dict[str, Tool[Any]]:
    """The tools of these names, in a stable order."""
    chosen = {}
    for name in sorted(set(names)):
        if name not in TOOLS:
            near = difflib.get_close_matches(name, TOOLS, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else "."
            raise ParleyError(f"There is no tool `{name}` (setting agent.tools){meant}")
        chosen[name] = TOOLS[name]
    return chosen
