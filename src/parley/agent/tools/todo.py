"""The tool `todo`: the list of this conversation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError

from parley.agent.foreign import one_line
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import ToolContext, tool
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


@tool(safe_to_repeat=True)
async def todo(arguments: TodoArguments, context: ToolContext) -> str:
    """Keep a list of steps for longer work in this conversation."""
    hands = lent_hands(context)
    if arguments.items is None:
        return _shown(_read(await hands.note(_NOTE)))
    kept = arguments.model_dump_json() if arguments.items else None
    await hands.put_note(_NOTE, kept)
    return _shown(arguments.items)


def _read(note: str | None) -> list[TodoItem]:
    """What was kept; what cannot be read any more is no list."""
    if note is None:
        return []
    try:
        return TodoArguments.model_validate_json(note).items or []
    except ValidationError:
        return []


def _shown(items: list[TodoItem]) -> str:
    if not items:
        return "The list is empty."
    done = sum(item.state == "done" for item in items)
    lines = [f"{_MARKS[item.state]} {one_line(item.text, 200)}" for item in items]
    return "\n".join([f"{done} of {len(items)} done:", *lines])
