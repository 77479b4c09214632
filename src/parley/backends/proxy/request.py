"""What a remote agent is sent: a turn as the headers and the body of one request. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from parley.agent.prompt import group_name, mend, plain_name, wishes_of
from parley.agent.providers.http import JsonObject
from parley.agent.providers.render import arguments_text
from parley.backends.base import Turn
from parley.protocol import (
    Attachment,
    ChatMessage,
    Request,
    SessionSource,
    ToolCall,
    ToolSpec,
    Wishes,
)

__all__ = [
    "DEFAULT_MODEL",
    "SESSION_HEADER",
    "Files",
    "asked_of",
    "body_of",
    "context_prompt",
    "headers_of",
    "outside_of",
]

DEFAULT_MODEL: Final = "parley"
SESSION_HEADER: Final = "X-Hermes-Session-Id"
_LONGEST_NAME: Final = 120
_PLACES: Final[Mapping[str, str]] = {
    "terminal": "a terminal",
    "api": "an API client",
    "direct": "another agent's chat",
    "web": "a web page",
}


@dataclass(frozen=True, slots=True)
class Files:
    """The files that came with a message: what is in them, and why some do not go along.

    `taken`: the far end takes files other than pictures, and keeps what it was sent.
    """

    contents: Mapping[Attachment, bytes] = field(default_factory=dict)
    faults: Mapping[Attachment, str] = field(default_factory=dict)
    taken: bool = False


def context_prompt(source: SessionSource) -> str:
    """Where the person is and who they are, as far as the far end cannot know it; may be empty.

    Who the agent is, is said at the far end: it has a soul of its own.
    """
    # At the far end this is an instruction: names that others chose must not be able to give any.
    name, group = plain_name(source.user_name), group_name(source.chat_name)
    if source.chat_type == "dm" and not name:
        return ""
    note = f"You are talking in {_PLACES.get(source.platform, source.platform.capitalize())}"
    if name:
        note += f" with {name}"
    if source.chat_type != "dm":
        note += f" in the group {group}" if group else " in a group"
    return f"{note}."


def headers_of(turn: Turn, *, key: str | None) -> dict[str, str]:
    headers = {
        "Accept": "text/event-stream",
        SESSION_HEADER: remote_session_id(turn),
        "X-Parley-Events": "1",
        "X-Parley-History": "whole",  # what is not in it was taken back
        # Gateways that lead to each other in a ring would hand a turn on for ever.
        "X-Parley-Hops": str(1 + (turn.request.hops if turn.request is not None else 0)),
    }
    if key:
        headers["Authorization"] = f"Bearer {key}"
    memory = turn.request.memory_key if turn.request is not None else None
    if memory and memory.isprintable():
        headers["X-Hermes-Session-Key"] = memory
    if outside := outside_of(turn):
        headers["X-Parley-Outside"] = quote(outside, safe=" :/@.,;()'")
    return headers


def outside_of(turn: Turn) -> str:
    """Where the text comes from that is to be answered, when whoever sent it did not write it."""
    asked = (message for message in asked_of(turn) if message.role == "user")
    return ", ".join(dict.fromkeys(message.outside for message in asked if message.outside))


def remote_session_id(turn: Turn) -> str:
    """The id of the conversation at the far end. A copy of a profile has the sessions of its
    original, so a named profile is part of it.
    """
    profile = turn.profile
    return turn.session_id if profile.is_default else f"{profile.name}-{turn.session_id}"


def asked_of(turn: Turn) -> tuple[ChatMessage, ...]:
    """What is to be answered. Steps of an earlier attempt are dropped: all is asked anew."""
    return tuple(message for message in turn.progress if message.role != "assistant")


def body_of(
    turn: Turn, asked: tuple[ChatMessage, ...], *, model: str, files: Files | None = None
) -> JsonObject:
    files = files or Files()
    request = turn.request
    body: JsonObject = {"model": model, "messages": _messages(turn, asked, files), "stream": True}
    body["stream_options"] = {"include_usage": True}
    if request is not None:
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        body.update(_wishes(request.wishes))
    return body


def _messages(turn: Turn, asked: tuple[ChatMessage, ...], files: Files) -> list[JsonObject]:
    instructions = turn.request.instructions.strip() if turn.request is not None else ""
    known = [context_prompt(turn.source), wishes_of(turn.person.soul), instructions]
    system = "\n\n".join(filter(None, known))
    messages: list[JsonObject] = []
    if system:
        messages.append({"role": "system", "content": system})
    is_theirs = _Theirs(turn.request)
    fresh = {id(message) for message in asked}
    for message in mend([*(entry.message for entry in turn.history), *asked]):
        if message.role == "tool":
            if message.tool_call_id in is_theirs.passed:
                messages.append(_result(message))
        elif calls := [call for call in message.tool_calls if is_theirs(call)]:
            messages.append(_reply_with_calls(message, calls))
        elif message.role == "user" and message.attachments and id(message) in fresh:
            messages.append({"role": "user", "content": _parts(message, files)} | _who(message))
        elif (text := _text_of(message, files)).strip():
            messages.append({"role": message.role, "content": text} | _who(message))
    return messages


def _who(message: ChatMessage) -> JsonObject:
    return {} if message.name is None else {"name": message.name}


class _Theirs:
    """Which calls are for the program that asked, and were therefore passed on."""

    def __init__(self, request: Request | None) -> None:
        told = request.messages if request is not None else ()
        self._ids = {call.id for message in told for call in message.tool_calls}
        self._names = {tool.name for tool in request.tools} if request is not None else set()
        self.passed: set[str | None] = set()

    def __call__(self, call: ToolCall) -> bool:
        theirs = call.id in self._ids or call.name in self._names
        if theirs:
            self.passed.add(call.id)
        else:
            self.passed.discard(call.id)
        return theirs


def _text_of(message: ChatMessage, files: Files) -> str:
    """What was said before, with a line for each file unless the far end has kept them itself."""
    if files.taken:
        return message.text  # to the letter, or it takes this for another conversation
    lines = (f"[file: {a.name}, {a.media_type}, {a.size} bytes]" for a in message.attachments)
    return "\n".join([*filter(None, [message.text]), *lines])


def _reply_with_calls(message: ChatMessage, calls: list[ToolCall]) -> JsonObject:
    rendered = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
        }
        for call in calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": rendered}


def _result(message: ChatMessage) -> JsonObject:
    return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text}


def _parts(message: ChatMessage, files: Files) -> list[JsonObject] | str:
    """A message with its files: as parts where they can go along, else named in the text."""
    lines = [message.text] if message.text else []
    parts: list[JsonObject] = []
    for item in message.attachments:
        part = _part(item, files)
        if part is not None:
            parts.append(part)
        else:
            lines.append(_named(item, files))
    text = "\n".join(lines)
    if not parts:
        return text
    return [{"type": "text", "text": text}, *parts] if text else parts


def _part(item: Attachment, files: Files) -> JsonObject | None:
    is_picture = item.media_type.startswith("image/")
    detail = {} if item.detail is None else {"detail": item.detail}
    if is_picture and item.is_remote:
        return {"type": "image_url", "image_url": {"url": item.path, **detail}}
    content = files.contents.get(item)
    if content is None or not (is_picture or files.taken):
        return None
    media_type = item.media_type.replace(" ", "")
    url = f"data:{media_type};base64,{b64encode(content).decode('ascii')}"
    if is_picture:
        return {"type": "image_url", "image_url": {"url": url, **detail}}
    return {"type": "file", "file": {"filename": item.name, "file_data": url}}


def _named(item: Attachment, files: Files) -> str:
    name = _one_line(item.name)
    if item.is_remote:
        return f"[file: {name}, {item.media_type}, at {item.path}]"
    why = files.faults.get(item) or "the connection to you takes no files"
    return f"[file: {name}, {item.media_type}, {item.size} bytes; it was not sent along: {why}]"


def _tool(tool: ToolSpec) -> JsonObject:
    return {"type": "function", "function": tool.to_dict()}


def _wishes(wishes: Wishes) -> JsonObject:
    chosen: Any = wishes.tool_choice
    if wishes.tool is not None:
        chosen = {"type": "function", "function": {"name": wishes.tool}}
    wanted: JsonObject = {
        "max_tokens": wishes.max_output_tokens,
        "temperature": wishes.temperature,
        "top_p": wishes.top_p,
        "seed": wishes.seed,
        "presence_penalty": wishes.presence_penalty,
        "frequency_penalty": wishes.frequency_penalty,
        "reasoning_effort": wishes.reasoning_effort,
        "stop": list(wishes.stop) or None,
        "tool_choice": chosen,
        "parallel_tool_calls": wishes.parallel_tool_calls,
        "response_format": None if wishes.response_format is None else dict(wishes.response_format),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _one_line(name: str | None) -> str:
    """A name as it may stand in a sentence: whoever chose it says no more than a name there."""
    return " ".join((name or "").split())[:_LONGEST_NAME]
