"""`POST /v1/chat/completions`: the answer, at once or in chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from parley.protocol import Final, ToolCall, Usage
from parley.surfaces.api.wire.encode import call_arguments, encode, quote

__all__ = ["ChatChunks", "FinishReason", "chat_completion", "chat_usage", "finish_reason"]

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]


def finish_reason(ending: Final) -> FinishReason:
    """Why the reply ends where it does."""
    if ending.calls:
        return "tool_calls"
    if ending.filtered:
        return "content_filter"
    return "stop" if ending.complete else "length"


def chat_completion(
    completion_id: str, created: int, model: str, ending: Final, usage: Usage | None
) -> dict[str, Any]:
    """The whole answer. Without a known usage there is none in it."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": ending.text if ending.text or not ending.calls else None,
        "refusal": None,
    }
    if ending.reasoning:
        message["reasoning_content"] = ending.reasoning
    if ending.calls:
        message["tool_calls"] = [_call(call) for call in ending.calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_reason(ending),
    }
    return {
        "id": completion_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": chat_usage(usage),
        "system_fingerprint": None,
    }


def chat_usage(usage: Usage | None) -> dict[str, Any] | None:
    """Tokens as chat completions count them."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call_arguments(call)},
    }


class ChatChunks:
    """The chunks of one streamed answer, each as the JSON of an event's data.

    What all of them share is written once: a piece of text only has to be quoted.
    """

    def __init__(
        self, completion_id: str, created: int, model: str, *, include_usage: bool = False
    ) -> None:
        self._shared: dict[str, Any] = {
            "id": completion_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
            "system_fingerprint": None,
        }
        self._not_yet: dict[str, Any] = {"usage": None} if include_usage else {}
        self._before, self._after = self._choice({"content": _HOLE}).split(encode(_HOLE))

    def role(self) -> bytes:
        """The first chunk: who speaks."""
        return self._choice({"role": "assistant", "content": "", "refusal": None})

    def text(self, text: str) -> bytes:
        """A further piece of the reply."""
        return self._before + quote(text) + self._after

    def reasoning(self, text: str) -> bytes:
        """A further piece of what the model thinks."""
        return self._choice({"reasoning_content": text})

    def calls(self, calls: tuple[ToolCall, ...]) -> bytes:
        """The calls that the program is to make, whole."""
        entries = [{"index": index, **_call(call)} for index, call in enumerate(calls)]
        return self._choice({"tool_calls": entries})

    def call_begins(self, index: int, call: ToolCall) -> bytes:
        """A call the model begins to write: its arguments follow."""
        function = {"name": call.name, "arguments": ""}
        entry = {"index": index, "id": call.id, "type": "function", "function": function}
        return self._choice({"tool_calls": [entry]})

    def arguments(self, index: int, text: str) -> bytes:
        """A further piece of a call's arguments."""
        return self._choice({"tool_calls": [{"index": index, "function": {"arguments": text}}]})

    def finish(self, reason: FinishReason) -> bytes:
        """The end of the reply."""
        return self._choice({}, reason)

    def usage(self, usage: Usage | None) -> bytes:
        """The last chunk for a program that wants the tokens counted."""
        return encode({**self._shared, "choices": [], "usage": chat_usage(usage)})

    def _choice(self, delta: Mapping[str, Any], reason: FinishReason | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return encode({**self._shared, "choices": [choice], **self._not_yet})


_HOLE = "\N{OBJECT REPLACEMENT CHARACTER} here the text \N{OBJECT REPLACEMENT CHARACTER}"
