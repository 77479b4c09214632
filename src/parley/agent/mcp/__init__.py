"""Tools of MCP servers. Each server lives in a task of its own and harms only itself."""

from parley.agent.mcp.limits import McpLimits
from parley.agent.mcp.plan import plan_fault
from parley.agent.mcp.servers import McpServers

__all__ = ["McpLimits", "McpServers", "plan_fault"]
