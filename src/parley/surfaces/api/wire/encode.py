"""JSON as it is sent: one line of valid UTF-8, whatever a model wrote."""

from __future__ import annotations

import json
from typing import Any

from parley.agent.providers.calls import MALFORMED
from parley.agent.providers.render import arguments_text
from parley.protocol import ToolCall

__all__ = ["call_arguments", "encode", "quote", "remainder"]

_AS_IT_IS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def encode(value: Any) -> bytes:
    """A value as JSON."""
    return _to_bytes(_AS_IT_IS(value))


def quote(text: str) -> bytes:
    """A text as a JSON string: this runs for every piece of a streamed reply."""
    if text.isascii():
        return _AS_IT_IS(text).encode()
    return _to_bytes(_AS_IT_IS(text))


def _to_bytes(text: str) -> bytes:
    # Some clients take these for the end of a line, and so of an event.
    for letter, escaped in _LINE_ENDS.items():
        if letter in text:
            text = text.replace(letter, escaped)
    # A lone surrogate, as a model may write one, becomes `?` instead of an error.
    return text.encode("utf-8", "replace")


def call_arguments(call: ToolCall) -> str:
    """The arguments of a call as a program gets them: what the model wrote, if it was no JSON."""
    raw = call.arguments.get(MALFORMED)
    if isinstance(raw, str) and len(call.arguments) == 1:
        return raw
    return arguments_text(call.arguments)


def remainder(streamed: str, reply: str) -> str | None:
    """What of a reply is still to be sent after `streamed`; None when that was another text.

    A reply is without the white space that a model puts around it.
    """
    if streamed.strip() == reply.strip():
        return ""
    begun = streamed.lstrip()
    return reply[len(begun) :] if reply.startswith(begun) else None
