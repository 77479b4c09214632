"""The tools that reach the web: `web_fetch` and `web_search`."""

from __future__ import annotations

from parley.agent.tools.web.toolset import web_tools

__all__ = ["web_tools"]
