"""A request as the chat messages that llama.cpp's server takes.

Each message is rendered from itself and what it answers, never from what comes later: the prefix
stays the same from turn to turn, and so does what llama.cpp has cached of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypedDict

from parley.agent.providers.attachments import Loaded, named, parts_of, with_name, with_parts
from parley.agent.providers.base import ModelRequest
from parley.agent.providers.local.schema import describe_tools, written_call, written_reply
from parley.protocol import ChatMessage

__all__ = ["WireMessage", "wire_messages"]


class WireMessage(TypedDict):
    role: str
    content: str


def wire_messages(
    request: ModelRequest, *, with_tools: bool, files: Loaded | None = None
) -> list[WireMessage]:
    """The messages of `request`; with tools, all that the model said is in the schema's form."""
    messages = [_with_files(message, files) for message in request.messages]
    system = request.system.strip()
    if with_tools:
        # The tools come first: they stay the same when what is known of the person changes.
        system = "\n\n".join(part for part in (describe_tools(request.tools), system) if part)
        said = _by_schema(messages)
    else:
        said = _plainly(messages)
    first = [WireMessage(role="system", content=system)] if system else []
    return first + _joined(said)


def _with_files(message: ChatMessage, files: Loaded | None) -> ChatMessage:
    if not message.attachments or message.role != "user":
        text = with_name(message, message.text)
        return message if message.name is None else replace(message, text=text)
    if files is None:
        return replace(message, text=with_name(message, named(message)))
    text = with_parts(message.text, list(parts_of(message, 0, files)))
    return replace(message, text=with_name(message, text))


def _plainly(messages: Sequence[ChatMessage]) -> Iterator[WireMessage]:
    for message in messages:
        # A model without tools would only imitate the traffic of another's.
        if message.role != "tool" and message.text:
            yield WireMessage(role=message.role, content=message.text)


def _by_schema(messages: Sequence[ChatMessage]) -> Iterator[WireMessage]:
    for place, message in enumerate(messages):
        if message.role == "user":
            yield WireMessage(role="user", content=message.text)
        elif message.tool_calls:
            results = _results_after(messages, place)
            for call in message.tool_calls:
                yield WireMessage(role="assistant", content=written_call(call))
                result = results.get(call.id, "(unknown)")
                yield WireMessage(role="user", content=f"Result of {call.name}:\n{result}")
        elif message.role == "assistant" and message.text:
            yield WireMessage(role="assistant", content=written_reply(message.text))


def _results_after(messages: Sequence[ChatMessage], place: int) -> dict[str, str]:
    results: dict[str, str] = {}
    for message in messages[place + 1 :]:
        if message.role != "tool":
            break
        results[message.tool_call_id or ""] = message.text
    return results


def _joined(messages: Iterator[WireMessage]) -> list[WireMessage]:
    """Join neighbours of the same role: many chat templates demand that roles take turns."""
    joined: list[WireMessage] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            content = f"{joined[-1]['content']}\n\n{message['content']}"
            joined[-1] = WireMessage(role=message["role"], content=content)
        else:
            joined.append(message)
    return joined
