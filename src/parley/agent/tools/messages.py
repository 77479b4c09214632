"""The tool `send_message`: say something now, besides the answer of this turn."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from parley.agent.foreign import one_line
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import ToolContext, ToolError, tool
from parley.agent.tools.lent import lent_hands
from parley.storage.hands import Conversation

__all__ = ["send_message"]

_SHOWN = 8


class SendArguments(Arguments):
    text: str = Field(min_length=1, max_length=8_000)
    to: str | None = Field(
        default=None,
        description="another conversation, by its id or name; `?` lists them",
    )


@tool(safe_to_repeat=True)
async def send_message(arguments: SendArguments, context: ToolContext) -> str:
    """Send a message besides your answer."""
    hands = lent_hands(context)
    to = None
    if arguments.to:
        to = _find(arguments.to, await hands.conversations()).lane
    if to in (None, context.session_key):
        to = None
        if not context.async_delivery:
            raise ToolError(
                "Nothing can be delivered here besides the answer; put the text into your answer."
            )
    return f"Sent to {await hands.send(context.call, arguments.text, to=to)}."


def _find(to: str, conversations: Sequence[Conversation]) -> Conversation:
    """The one of this id; else the only one of this title, or in a chat of this name."""
    for one in conversations:
        if to in (one.session, one.lane):
            return one
    wanted = to.casefold()
    fitting = [one for one in conversations if wanted in _names(one)]
    if len(fitting) == 1:
        return fitting[0]
    if not conversations:
        raise ToolError("There is no other conversation to send to; leave `to` out.")
    problem = "There are several such conversations" if fitting else "There is no such conversation"
    known = [_line(one) for one in (fitting or conversations)[:_SHOWN]]
    raise ToolError("\n".join([f"{problem}; give the id of one as `to`:", *known]))


def _names(one: Conversation) -> set[str]:
    names = (one.title, one.source.chat_name)
    return {name.strip().casefold() for name in names if name}


def _line(one: Conversation) -> str:
    source = one.source
    parts = (source.platform, source.chat_name, source.user_name or source.user_id)
    place = ", ".join(one_line(part, 40) for part in parts if part)
    return f"{one.session}: {one_line(one.title or 'untitled', 60)} ({place})"
