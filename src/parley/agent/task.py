"""One turn of the built-in agent, as its loop sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from parley.agent.budget import Purse
from parley.agent.hands import Ask
from parley.agent.providers.base import Provider
from parley.agent.tokens import Calibration
from parley.agent.tools.base import Tool, ToolContext
from parley.protocol import ChatMessage, HistoryEntry, Request, ToolSpec, Wishes

__all__ = ["AgentTask", "Limits", "offered_to", "specs_for"]

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
    what the settings let the model say, in tokens; `calibration` corrects estimates of tokens.
    `outside` names sources of text before the history that nobody in the conversation wrote, and
    what the people in `strangers` said counts as such text too; `taint` is what becomes of guarded
    calls when there is any.
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
    calibration: Calibration | None = None
    outside: str = ""
    strangers: frozenset[str] = frozenset()
    taint: Literal["ask", "block", "off"] = "ask"

    @property
    def wishes(self) -> Wishes:
        return self.request.wishes if self.request is not None else _NO_WISHES

    @property
    def theirs(self) -> tuple[ToolSpec, ...]:
        """The tools that the program which asked runs itself."""
        return self.request.tools if self.request is not None else ()

    @property
    def offered(self) -> Mapping[str, Tool[Any]]:
        """Those of our own that the model is told of."""
        return offered_to(self.provider, self.tools, self.request)


def offered_to(
    provider: Provider, tools: Mapping[str, Tool[Any]], request: Request | None
) -> Mapping[str, Tool[Any]]:
    """A program's own tools come before ours of the same name."""
    if not provider.offers_tools:
        return {}
    theirs = {tool.name for tool in request.tools} if request is not None else set()
    return {name: tool for name, tool in tools.items() if name not in theirs} if theirs else tools


def specs_for(
    provider: Provider, tools: Mapping[str, Tool[Any]], request: Request | None
) -> tuple[ToolSpec, ...]:
    """What the model is told of tools in a turn, in this order."""
    if not provider.offers_tools:
        return ()
    ours = tuple(tool.spec for tool in offered_to(provider, tools, request).values())
    if request is None:
        return ours
    return () if request.wishes.tool_choice == "none" else (*ours, *request.tools)
