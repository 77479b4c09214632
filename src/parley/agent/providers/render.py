"""What every wire format shares: how a message reads, and how numbers are taken from a reply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from parley.agent.providers.base import ModelRequest
from parley.protocol import ChatMessage

__all__ = ["CHECK", "arguments_text", "count", "output_limit", "reasoning_in", "says_nothing"]

CHECK = ModelRequest(system="", messages=(ChatMessage("user", "Say ok."),), max_output_tokens=64)
"""The small live call that shows whether a provider works."""


_MOST_TOKENS = 10**12


def says_nothing(message: ChatMessage) -> bool:
    """Whether a message is an empty reply, which servers refuse to read."""
    return message.role == "assistant" and not (
        message.tool_calls or message.attachments or message.text.strip()
    )


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON; sorted, so that a call read back from storage gives the same bytes."""
    return json.dumps(
        dict(arguments), ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str
    )


def reasoning_in(delta: Mapping[str, Any]) -> str:
    """What the model thinks, by whichever of its names in an OpenAI-compatible message."""
    thought = delta.get("reasoning_content") or delta.get("reasoning")
    return thought if isinstance(thought, str) else ""


def output_limit(*limits: int | None) -> int | None:
    """The tightest of the limits that are set."""
    return min((limit for limit in limits if limit is not None), default=None)


def count(numbers: object, name: str) -> int:
    """A count of tokens out of a server's usage object; 0 for what is missing or no number."""
    value = numbers.get(name) if isinstance(numbers, Mapping) else None
    if isinstance(value, int | float) and value > 0:
        return int(min(value, _MOST_TOKENS))  # infinity too is smaller then
    return 0
