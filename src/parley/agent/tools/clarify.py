"""The tool `clarify`: ask the person, and wait for what they say."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from parley.agent.foreign import one_line
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import ToolContext, ToolError, tool
from parley.agent.tools.lent import lent_hands

__all__ = ["clarify"]

Choice = Annotated[str, Field(min_length=1, max_length=200)]


class ClarifyArguments(Arguments):
    question: str = Field(min_length=1, max_length=2_000)
    choices: list[Choice] | None = Field(default=None, max_length=6)


@tool(safe_to_repeat=True, timeout_seconds=None, waits_for_people=True)
async def clarify(arguments: ClarifyArguments, context: ToolContext) -> str:
    """Ask the person something you cannot go on without, and wait for the answer."""
    hands = lent_hands(context)
    if not hands.can_clarify:
        raise ToolError(
            "Nobody can be asked here; decide yourself, or end your turn with the question."
        )
    if await hands.clarify(context.call, _asked(arguments)):
        return "The person's answer is the next message."
    return "No answer came in time; decide yourself, or end your turn with the question."


def _asked(arguments: ClarifyArguments) -> str:
    choices = arguments.choices or []
    lines = [f"{number}. {one_line(text, 200)}" for number, text in enumerate(choices, 1)]
    return "\n".join([arguments.question, *lines])
