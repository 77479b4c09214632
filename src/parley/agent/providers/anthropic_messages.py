"""A request in Anthropic's Messages format: the same history always gives the same blocks."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence

from parley.agent.providers.attachments import Loaded, Shown, named, parts_of, with_name, with_parts
from parley.agent.providers.base import ToolSpec
from parley.agent.providers.http import JsonObject
from parley.agent.providers.render import arguments_text, says_nothing
from parley.protocol import ChatMessage

__all__ = ["render_messages", "render_system", "render_tools"]

_CACHED_MESSAGES = 2  # with the system prompt three marks; the format allows four
_NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_NO_TEXT = "(no text)"  # empty text blocks are refused


def render_system(system: str) -> list[JsonObject]:
    """The system prompt, marked: it and the tools before it are kept in the server's cache."""
    return [_marked({"type": "text", "text": system})]


def render_tools(tools: Iterable[ToolSpec]) -> list[JsonObject]:
    return [
        {"name": t.name, "description": t.description, "input_schema": dict(t.parameters)}
        for t in tools
    ]


def render_messages(
    messages: Sequence[ChatMessage], *, with_tools: bool, files: Loaded | None = None
) -> list[JsonObject]:
    """The transcript in turns of user and assistant, the last user ones marked for the cache.

    Without tools in the request the format refuses blocks of earlier calls: they become text.
    """
    turns: list[JsonObject] = []
    for place, message in enumerate(messages):
        if says_nothing(message):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if message.attachments and files is not None and message.role == "user":
            blocks = _blocks_with_files(message, place, files)
        else:
            blocks = _blocks(message) if with_tools else _plain_blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        else:
            if not turns and role == "assistant":
                turns.append({"role": "user", "content": [_text_block(_NO_TEXT)]})
            turns.append({"role": role, "content": blocks})
    for turn in [turn for turn in turns if turn["role"] == "user"][-_CACHED_MESSAGES:]:
        turn["content"][-1] = _marked(turn["content"][-1])
    return turns


def _blocks(message: ChatMessage) -> list[JsonObject]:
    if message.role == "tool":
        block: JsonObject = {"type": "tool_result", "tool_use_id": _id(message.tool_call_id)}
        if message.text.strip():
            block["content"] = message.text
        return [block]
    text = with_name(message, named(message))
    blocks: list[JsonObject] = [_text_block(text)] if text.strip() else []
    blocks.extend(
        {
            "type": "tool_use",
            "id": _id(call.id),
            "name": call.name,
            "input": json.loads(arguments_text(call.arguments)),  # in its sorted order
        }
        for call in message.tool_calls
    )
    return blocks or [_text_block(_NO_TEXT)]


def _blocks_with_files(message: ChatMessage, place: int, files: Loaded) -> list[JsonObject]:
    parts = list(parts_of(message, place, files))
    text = with_name(message, with_parts(message.text, parts))
    blocks = [_shown_block(part) for part in parts if isinstance(part, Shown)]
    if text.strip():
        blocks.insert(0, _text_block(text))
    return blocks or [_text_block(_NO_TEXT)]


def _shown_block(part: Shown) -> JsonObject:
    if part.url:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    source = {
        "type": "base64",
        "media_type": part.media_type,
        "data": b64encode(part.data).decode(),
    }
    if part.kind == "picture":
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, "title": part.name}


def _plain_blocks(message: ChatMessage) -> list[JsonObject]:
    if message.role == "tool":
        return [_text_block(f"[result of {message.tool_name or 'a tool'}] {message.text}")]
    calls = (f"[used {c.name} {arguments_text(c.arguments)}]" for c in message.tool_calls)
    text = "\n".join([*filter(str.strip, [with_name(message, named(message))]), *calls])
    return [_text_block(text or _NO_TEXT)]


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _marked(block: JsonObject) -> JsonObject:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _id(call_id: str | None) -> str:
    # Ids of another provider's calls may hold characters that are refused here.
    return _NOT_IN_AN_ID.sub("_", call_id or "") or "_"
