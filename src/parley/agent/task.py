"""One turn of the built-in agent, as its loop sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from parley.agent.budget import Purse
from parley.agent.hands import Ask
from parley.agent.providers.base import Provider
from parley.agent.tools.base import Tool, ToolContext
from parley.protocol import ChatMessage, HistoryEntry, Request, ToolSpec, Wishes

__all__ = ["AgentTask", "Limits"]

_NO_WISHES = Wishes()


@dataclass(frozen=True, slots=True)
class Limits:
    """What one turn may use."""

    steps: int
    seconds: float
    tokens: int


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One turn, as the loop sees it. `ask` puts a call to a person; None: nobody can be asked.

    `turn` is a name for it that no other turn has: calls are named after it. `longest_answer` is
    what the settings let the model say, in tokens.
    """

    system: str
    history: tuple[HistoryEntry, ...]
    progress: tuple[ChatMessage, ...]
    resumed: bool
    provider: Provider
    tools: Mapping[str, Tool[Any]]
    context: ToolContext
    limits: Limits
    steer: Callable[[], Awaitable[tuple[ChatMessage, ...]]]
    check: Callable[[], Awaitable[None]]
    request: Request | None = None
    ask: Ask | None = None
    purse: Purse | None = None
    longest_answer: int | None = None
    turn: str = ""

    @property
    def wishes(self) -> Wishes:
        return self.request.wishes if self.request is not None else _NO_WISHES

    @property
    def theirs(self) -> tuple[ToolSpec, ...]:
        """The tools that the program which asked runs itself."""
        return self.request.tools if self.request is not None else ()
