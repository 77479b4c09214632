"""The tool `delegate_task`: another agent of this profile works on something by itself."""

from __future__ import annotations

import json

from pydantic import Field

from parley.agent.question_text import describe_text, shown_name
from parley.agent.taint import Taint
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import ToolContext, ToolError, ToolResult, tool
from parley.agent.tools.lent import lent_hands, name_of

__all__ = ["delegate_task"]

_RAN_NOW = (
    "It ran synchronously, not in the background: this channel cannot deliver a result later."
)


class DelegateArguments(Arguments):
    goal: str = Field(min_length=1, max_length=8_000)
    context: str = Field(default="", max_length=20_000, description="all it has to know")
    tools: list[str] | None = Field(default=None, max_length=50, description="only these")
    background: bool = Field(default=False, description="do not wait; the result comes later")


def _guard(arguments: DelegateArguments, context: ToolContext, taint: Taint) -> str | None:
    tools = ", ".join(map(shown_name, arguments.tools or ()))
    note = f"with {tools}" if tools else ""
    return describe_text("let another agent work on", _told(arguments), note)


@tool(safe_to_repeat=True, parallel=True, timeout_seconds=None, guard=_guard)
async def delegate_task(arguments: DelegateArguments, context: ToolContext) -> str | ToolResult:
    """Let another agent do a task on its own. It knows only what you tell it."""
    hands = lent_hands(context)
    if context.source.platform == "task":
        raise ToolError("A delegated task cannot delegate further; do it yourself.")
    name = name_of("task", context)
    later = arguments.background and context.async_delivery
    task = await hands.delegate(
        name,
        _told(arguments),
        tools=arguments.tools,
        background=later,
        outside=context.outside,
    )
    if not task.ok:
        raise ToolError(task.result or f"The task {task.id} failed; do it yourself.")
    answer = {"task_id": task.id}
    if later and task.result is None:
        answer |= {"status": "running", "note": "Its result arrives here as a message."}
        return ToolResult(json.dumps(answer, ensure_ascii=False), outside="")
    answer["result"] = task.result or ""
    if arguments.background and not later:
        answer["note"] = _RAN_NOW
    # What it read is not to be seen in its answer; where it read nothing, the words are our own.
    source = f"a delegated task that read {task.outside}" if task.outside else ""
    return ToolResult(json.dumps(answer, ensure_ascii=False), outside=source)


def _told(arguments: DelegateArguments) -> str:
    if not arguments.context:
        return arguments.goal
    return f"{arguments.goal}\n\nWhat there is to know:\n{arguments.context}"
