"""The tool `send_message`: say something now, besides the answer of this turn."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from parley.agent.foreign import one_line
from parley.agent.question_text import describe_text, shown_name
from parley.agent.taint import Taint
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import ToolContext, ToolError, ToolResult, tool
from parley.agent.tools.lent import lent_hands
from parley.protocol import person_of
from parley.storage.hands import Conversation

__all__ = ["send_message"]

_SHOWN = 8


class SendArguments(Arguments):
    text: str = Field(min_length=1, max_length=8_000)
    to: str | None = Field(
        default=None,
        description="another conversation, by its id or the name of their own; `?` lists them",
    )


def _guard(arguments: SendArguments, context: ToolContext, taint: Taint) -> str | None:
    if arguments.to == "?":  # a list of names
        return None
    if not arguments.to:
        return describe_text("send", arguments.text, "to this conversation")
    where = f"to {shown_name(arguments.to)}"
    known = context.hands.known_conversation(arguments.to) if context.hands is not None else None
    if known is not None:
        where += f", a conversation of {shown_name(person_of(known.source))}"
    return describe_text("send", arguments.text, where)


@tool(safe_to_repeat=True, guard=_guard)
async def send_message(arguments: SendArguments, context: ToolContext) -> ToolResult:
    """Send a message besides your answer."""
    hands = lent_hands(context)
    to = None
    if arguments.to:
        to = _find(arguments.to, await hands.conversations(), hands.person).lane
    if to in (None, context.session_key):
        to = None
        if not context.async_delivery:
            raise ToolError(
                "Nothing can be delivered here besides the answer; put the text into your answer."
            )
    where = await hands.send(context.call, arguments.text, to=to, outside=context.outside)
    return ToolResult(f"Sent to {where}.", outside="")


def _find(to: str, conversations: Sequence[Conversation], person: str) -> Conversation:
    """The one of this id; else the only one of this person's own that has this name.

    Others choose the names of their conversations, so theirs are found by id alone.
    """
    for one in conversations:
        if to in (one.session, one.lane):
            return one
    wanted = to.casefold()
    own = [one for one in conversations if _is_own(one, person)]
    fitting = [one for one in own if wanted in _names(one)]
    if len(fitting) == 1:
        return fitting[0]
    if not conversations:
        raise ToolError("There is no other conversation to send to; leave `to` out.")
    problem = "There are several such conversations" if fitting else "There is no such conversation"
    known = [_line(one) for one in (fitting or conversations)[:_SHOWN]]
    raise ToolError("\n".join([f"{problem}; give the id of one as `to`:", *known]))


def _is_own(one: Conversation, person: str) -> bool:
    return one.source.chat_type == "dm" and person_of(one.source) == person


def _names(one: Conversation) -> set[str]:
    names = (one.title, one.source.chat_name)
    return {name.strip().casefold() for name in names if name}


def _line(one: Conversation) -> str:
    source = one.source
    parts = (source.chat_name, source.user_name, person_of(source))
    place = ", ".join(one_line(part, 80) for part in parts if part)
    return f"{one.session}: {one_line(one.title or 'untitled', 60)} ({place})"
