"""MCP servers for tests: real programs, and what is set up for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from parley.agent.mcp import McpLimits, McpServers
from parley.agent.tools import Tool, ToolResult
from parley.config.hands import McpServerSettings
from parley.profiles import Profile
from parley.protocol import ToolCall
from tests.agent.builders import context
from tests.servers.ports import listens
from tests.waiting import until

__all__ = [
    "QUICK",
    "alive",
    "call",
    "http_server",
    "raw",
    "real",
    "running",
    "starts",
    "tool_of",
]

ROOT = Path(__file__).parents[3]
REAL = ROOT / "tests" / "servers" / "mcp_server.py"
RAW = Path(__file__).with_name("raw_server.py")
ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}

QUICK = McpLimits(first_wait=0.05, longest_wait=0.2, refresh_gap=0.01, end_within=0.5)


def real(**more: Any) -> McpServerSettings:
    """The server made with the official library, as a child."""
    return McpServerSettings(command=sys.executable, args=[str(REAL), "stdio"], **more)


def raw(how: str, file: Path | None = None, **more: Any) -> McpServerSettings:
    """The one that misbehaves."""
    args = ["-I", "-S", str(RAW), how, *([str(file)] if file else [])]
    return McpServerSettings(command=sys.executable, args=args, **more)


@contextlib.asynccontextmanager
async def running(
    home: Path,
    settings: Mapping[str, McpServerSettings],
    *,
    secrets: Mapping[str, str] | None = None,
    limits: McpLimits = QUICK,
    wait: float = 90.0,
) -> AsyncIterator[McpServers]:
    servers = McpServers(
        Profile("default", home),
        settings,
        secret=(secrets or {}).get,
        environment=ENVIRONMENT,
        limits=limits,
    )
    servers.start()
    try:
        await servers.ready(wait)
        yield servers
    finally:
        await servers.close()


def tool_of(servers: McpServers, name: str) -> Tool[Any]:
    return next(tool for tool in servers.tools() if tool.name == name)


async def call(servers: McpServers, name: str, /, **arguments: Any) -> ToolResult:
    return await tool_of(servers, name).run(ToolCall("c1", name, arguments), context())


def alive(pid: int) -> bool:
    """Whether it runs: what is dead and not yet fetched by its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def starts(file: Path) -> list[int]:
    """The processes that wrote themselves down."""
    if not file.exists():
        return []
    return [int(line.split()[0]) for line in file.read_text().splitlines()]


@contextlib.asynccontextmanager
async def http_server(port: int, *token: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The real server on loopback, answering."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(REAL), "http", str(port), *token
    )
    try:
        await until(lambda: listens(port))
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def parsed(result: ToolResult) -> Any:
    assert result.ok, result.text
    return json.loads(result.text)
