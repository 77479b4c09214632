"""Builders for the agent's tests: one turn as the loop sees it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

from parley.agent.loop import AgentTask, Limits, run_agent
from parley.agent.providers.base import Provider
from parley.agent.tools import ToolContext
from parley.protocol import (
    ChatMessage,
    HistoryEntry,
    SessionSource,
    StepTaken,
    TurnEvent,
)
from tests.gateway.hand_tool import HandTool

__all__ = ["all_of", "context", "make_task", "numbered", "results", "run"]

T = TypeVar("T")


def context(workspace: Path = Path("/nowhere")) -> ToolContext:
    return ToolContext("default", workspace, SessionSource("desk", "one"), "key", True, {})


def numbered(messages: Sequence[ChatMessage]) -> tuple[HistoryEntry, ...]:
    return tuple(HistoryEntry(number, message) for number, message in enumerate(messages, 1))


async def _nothing() -> tuple[ChatMessage, ...]:
    return ()


async def _fine() -> None:
    return


def make_task(
    provider: Provider,
    *hands: HandTool,
    text: str = "hello",
    history: Sequence[ChatMessage] = (),
    progress: Sequence[ChatMessage] | None = None,
    resumed: bool = False,
    limits: Limits | None = None,
) -> AgentTask:
    return AgentTask(
        system="Be brief.",
        history=numbered(history),
        progress=tuple(progress) if progress is not None else (ChatMessage("user", text),),
        resumed=resumed,
        provider=provider,
        tools={hand.tool.name: hand.tool for hand in hands},
        context=context(),
        limits=limits or Limits(steps=10, seconds=20, tokens=100_000),
        steer=_nothing,
        check=_fine,
    )


async def run(task: AgentTask) -> list[TurnEvent]:
    async with aclosing(run_agent(task)) as events:
        return [event async for event in events]


def all_of(events: Sequence[TurnEvent], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]


def results(events: Sequence[TurnEvent]) -> list[str]:
    """The results of tools, in the order they were journalled."""
    return [
        message.text
        for step in all_of(events, StepTaken)
        for message in step.messages
        if message.role == "tool"
    ]
