"""The tool `todo`: the list of this conversation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError

from parley.agent.foreign import one_line
from parley.agent.taint import Taint
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import ToolContext, ToolResult, tool
from parley.agent.tools.lent import lent_hands

__all__ = ["todo"]

_NOTE = "todo"
_MARKS = {"open": "[ ]", "doing": "[>]", "done": "[x]"}


class TodoItem(Arguments):
    text: str = Field(min_length=1, max_length=200)
    state: Literal["open", "doing", "done"] = "open"


class TodoArguments(Arguments):
    items: list[TodoItem] | None = Field(
        default=None, max_length=50, description="the whole new list; leave out to see it"
    )


class KeptTodo(TodoArguments):
    """The list as it is kept. `outside`: what the agent had read when it wrote it."""

    outside: str = ""


def _guard(arguments: TodoArguments, context: ToolContext, taint: Taint) -> str | None:
    """Nobody is asked; but the list stays when the turn that wrote it is undone."""
    return None


@tool(safe_to_repeat=True, guard=_guard)
async def todo(arguments: TodoArguments, context: ToolContext) -> ToolResult:
    """Keep a list of steps for longer work in this conversation."""
    hands = lent_hands(context)
    if arguments.items is None:
        kept = _read(await hands.note(_NOTE))
    else:
        kept = KeptTodo(items=arguments.items, outside=context.outside)
        await hands.put_note(_NOTE, kept.model_dump_json() if kept.items else None)
    return ToolResult(_shown(kept.items or []), outside=kept.outside)


def _read(note: str | None) -> KeptTodo:
    """What was kept; what cannot be read any more is no list."""
    if note is None:
        return KeptTodo()
    try:
        return KeptTodo.model_validate_json(note)
    except ValidationError:
        return KeptTodo()


def _shown(items: list[TodoItem]) -> str:
    if not items:
        return "The list is empty."
    done = sum(item.state == "done" for item in items)
    lines = [f"{_MARKS[item.state]} {one_line(item.text, 200)}" for item in items]
    return "\n".join([f"{done} of {len(items)} done:", *lines])
