"""How long we wait for an MCP server, and how much we take from it."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["McpLimits"]


@dataclass(frozen=True, slots=True)
class McpLimits:
    """Seconds, characters, bytes and counts; what is over them ends the connection or is cut."""

    begin: float = 60.0
    """For the first words and the first list of tools; some programs fetch themselves first."""
    look_every: float = 30.0
    look_within: float = 30.0
    refresh_gap: float = 1.0
    end_within: float = 1.0
    """Between closing its input, asking it to end, and ending it."""
    late_calls: int = 3
    """Calls in a row that came to no end, before it is started again."""

    first_wait: float = 0.5
    longest_wait: float = 60.0
    steady_after: float = 60.0
    """Up for so long, it counts as well again: the next wait is the first one."""

    message_bytes: int = 4 * 1024 * 1024
    window_seconds: float = 10.0
    window_messages: int = 2_000
    window_bytes: int = 64 * 1024 * 1024
    log_bytes: int = 1_000_000

    tools: int = 128
    pages: int = 32
    description: int = 500
    schema: int = 16_000

    def wait(self, failures: int) -> float:
        """How long to wait after so many failures, never quite the same."""
        plain = self.first_wait * 2 ** min(failures, 16)
        return float(min(self.longest_wait, plain * random.uniform(0.75, 1.25)))  # noqa: S311
