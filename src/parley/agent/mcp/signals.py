"""What the parts of one connection tell each other: that it is over, that something changed."""

from __future__ import annotations

import asyncio
import time

from parley.agent.mcp.limits import McpLimits

__all__ = ["Ended", "Meter", "Signals"]


class Ended(Exception):
    """The connection is over; the text says why."""


class Signals:
    """Of one connection. The first reason to end it is the one that counts."""

    def __init__(self) -> None:
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        self.left_out: set[str] = set()
        """Names of tools that cannot even be read."""
        self.refused: int | None = None
        """The last HTTP status that was an error."""

    def end(self, reason: str) -> None:
        if not self.over.done():
            self.over.set_result(reason)


class Meter:
    """How much came in a while; too much is the end."""

    def __init__(self, limits: McpLimits) -> None:
        self._limits = limits
        self._since = time.monotonic()
        self._messages = 0
        self._bytes = 0

    def count(self, size: int) -> None:
        """Raises `Ended` when a server says more than anyone could want to hear."""
        now, limits = time.monotonic(), self._limits
        if now - self._since > limits.window_seconds:
            self._since, self._messages, self._bytes = now, 0, 0
        self._messages += 1
        self._bytes += size
        if size > limits.message_bytes:
            raise Ended(f"It sent more than {limits.message_bytes // 1024} KiB at once.")
        if self._messages > limits.window_messages or self._bytes > limits.window_bytes:
            raise Ended("It sent messages without end.")
