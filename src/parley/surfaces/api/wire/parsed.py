"""What a request asks for, whichever of the wire formats it came in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parley.protocol import ChatMessage, ToolSpec, Wishes

__all__ = ["ParsedRequest"]


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request that was read. `messages` ends with what is to be answered."""

    model: str | None
    messages: tuple[ChatMessage, ...]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    wishes: Wishes = field(default_factory=Wishes)
    stream: bool = False
    include_usage: bool = False
    store: bool = False
    previous_response_id: str | None = None
    session_id: str | None = None
    user: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    background: bool = False
    conversation: str | None = None
    items: tuple[Mapping[str, Any], ...] = ()
    """What was given, item by item, as it is kept."""

    @property
    def text(self) -> str:
        """The last words of the user, as they are shown in a list."""
        said = (message.text for message in reversed(self.messages) if message.role == "user")
        return next(said, "")
