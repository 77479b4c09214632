"""All MCP servers of a profile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import Context
from typing import Any

from parley.agent.mcp.limits import McpLimits
from parley.agent.mcp.plan import Plan, make_plan, secrets_of
from parley.agent.mcp.server import McpServer
from parley.agent.tools.base import Tool
from parley.config.hands import McpServerSettings
from parley.profiles import Profile, enter_scope

__all__ = ["McpServers"]


class McpServers:
    """Each in a task of its own. `environment` is what any child of the profile may know."""

    def __init__(
        self,
        profile: Profile,
        settings: Mapping[str, McpServerSettings],
        *,
        secret: Callable[[str], str | None],
        environment: Mapping[str, str],
        limits: McpLimits | None = None,
    ) -> None:
        self._profile = profile
        self._settings = {name: one for name, one in sorted(settings.items()) if one.enabled}
        self._secret = secret
        self._environment = environment
        self._limits = limits or McpLimits()
        self._servers: list[McpServer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._began = 0.0

    def start(self) -> None:
        """Begin to reach every server, and come back at once. Secrets are read here and now."""
        self._began = time.monotonic()
        for name, settings in self._settings.items():
            server = McpServer(name, settings, self._planner(name, settings), self._limits)
            self._servers.append(server)
            # In a context of its own: whoever starts it, it works for the profile and no turn.
            self._tasks.append(asyncio.create_task(self._look_after(server), context=Context()))

    def tools(self, *, without: Collection[str] = ()) -> Sequence[Tool[Any]]:
        """What is known now, always in the same order; nothing of the servers named `without`."""
        by_name: dict[str, Tool[Any]] = {}
        for server in self._servers:
            for tool in server.tools if server.name not in without else ():
                by_name.setdefault(tool.name, tool)
        return tuple(by_name.values())

    async def ready(self, timeout: float | None = 2.0) -> None:
        """Wait until every server has been reached or has failed, `timeout` from the start at most.

        Later it does not wait at all: a server that hangs delays nobody twice. With None it waits
        for as long as servers may take to begin.
        """
        limit = self._limits.begin if timeout is None else timeout
        left = self._began + limit - time.monotonic()
        waiting = [server for server in self._servers if not server.settled.is_set()]
        if not waiting or left <= 0:
            return
        tasks = [asyncio.create_task(server.settled.wait()) for server in waiting]
        try:
            await asyncio.wait(tasks, timeout=left)
        finally:
            for task in tasks:
                task.cancel()

    def health(self) -> dict[str, str]:
        """What is wrong, by the server's name; nothing is said of those that are well."""
        told = {server.name: server.health for server in self._servers}
        return {name: sentence for name, sentence in told.items() if sentence}

    def waiting(self) -> tuple[str, ...]:
        """The names of those of which nothing was heard yet."""
        return tuple(server.name for server in self._servers if not server.settled.is_set())

    async def close(self) -> None:
        """End all of them; no process is left."""
        tasks, self._tasks = self._tasks, []
        bound = 4 * self._limits.end_within + 2.0
        for _ in range(2):
            for task in tasks:
                task.cancel()
            if tasks:
                _, pending = await asyncio.wait(tasks, timeout=bound)
                tasks = list(pending)
        self._servers.clear()

    async def _look_after(self, server: McpServer) -> None:
        enter_scope(self._profile)
        await server.run()

    def _planner(self, name: str, settings: McpServerSettings) -> Callable[[], Plan]:
        secrets = secrets_of(settings, self._secret)
        return lambda: make_plan(
            self._profile, name, settings, secrets=secrets, environment=self._environment
        )
