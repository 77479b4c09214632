"""What one call to a remote agent came to, for callers that want it whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from parley.backends.base import Turn
from parley.protocol import ChatMessage, Failed, Final, StepTaken, ToolStarted, TurnEvent

__all__ = ["ProxyResult"]


@dataclass(slots=True)
class ProxyResult:
    """Filled as the turn goes. A turn that is no longer wanted leaves it empty.

    `messages` is what the turn adds to the conversation; `history_offset` is how many came before
    it. `api_calls` is 0 where there was no answer.
    """

    session_id: str
    history_offset: int
    final_response: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    api_calls: int = 0
    tools: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, turn: Turn) -> ProxyResult:
        return cls(turn.session_id, len(turn.history))

    def asked(self, messages: Iterable[ChatMessage]) -> None:
        """These are to be answered."""
        for message in messages:
            if message.role == "user" and message.text:
                self._add("user", message.text)

    def take(self, event: TurnEvent) -> None:
        match event:
            case StepTaken(messages=messages):
                for message in messages:
                    self._add("assistant", message.text)
            case ToolStarted(call=call):
                self.tools.append(call.name)
            case Final(text=text):
                self.final_response, self.api_calls = text, 1
                if text:
                    self._add("assistant", text)
            case Failed(sentence=sentence):
                self.clear()
                self.final_response = sentence
            case _:
                pass

    def clear(self) -> None:
        """Nothing of this is to be seen."""
        self.final_response, self.api_calls = "", 0
        self.messages.clear()
        self.tools.clear()

    def to_dict(self) -> dict[str, Any]:
        return {
            "final_response": self.final_response,
            "messages": [dict(message) for message in self.messages],
            "api_calls": self.api_calls,
            "tools": list(self.tools),
            "history_offset": self.history_offset,
            "session_id": self.session_id,
        }

    def _add(self, role: str, text: str) -> None:
        self.messages.append({"role": role, "content": text})
