"""The log of a background response, and the events that it gives whoever follows it.

The same log always gives the same events, with the same numbers and ids, so a stream can be taken
up at any of them, after a restart too.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from parley.protocol import Failed, ToolCall, Usage
from parley.protocol import Final as FinalReply
from parley.surfaces.api.wire.responses_events import ResponseEvents, ServerEvent
from parley.surfaces.api.wire.streamed_text import StreamDiverged

__all__ = ["LoggedResponse", "ending_line", "response_in"]

_ENDED: Final = "response.ended"
LogLine = tuple[str, Mapping[str, Any]]


def ending_line(reply: FinalReply | Failed | None, usage: Usage | None) -> LogLine:
    """The last line of a log: how the response ended. None was stopped."""
    told: dict[str, Any] = {"at": int(time.time()), "usage": usage and asdict(usage)}
    if isinstance(reply, FinalReply):
        calls = [call.to_dict() for call in reply.calls]
        told["final"] = {"text": reply.text, "calls": calls, "complete": reply.complete}
        told["final"]["filtered"] = reply.filtered
    elif reply is not None:
        told["failed"] = {"sentence": reply.sentence, "kind": reply.kind}
    return _ENDED, told


def response_in(echo: Mapping[str, Any], log: Iterable[LogLine]) -> dict[str, Any]:
    """The response that a whole log tells of."""
    logged = LoggedResponse(echo)
    last = logged.start()[-1]
    for kind, data in log:
        last = (logged.take(kind, data) or [last])[-1]
    response: dict[str, Any] = json.loads(last.data)["response"]
    return response


class LoggedResponse:
    """Makes the events of a response from its log, line by line."""

    def __init__(self, echo: Mapping[str, Any]) -> None:
        self._id: str = echo["id"]
        self._items = 0
        self._events = ResponseEvents(echo, item_id=self._item_id)

    def start(self) -> list[ServerEvent]:
        return self._events.start()

    def take(self, kind: str, data: Mapping[str, Any]) -> list[ServerEvent]:
        match kind:
            case "text.delta":
                return self._events.text(data["delta"])
            case "reasoning.delta":
                return self._events.reasoning(data["delta"])
            case "text.reset":
                return self._events.withdraw()
            case "step" if self._events.one_value:
                return self._events.withdraw()
            case "step":
                return self._events.step()
            case "response.ended":
                return self._end(data)
            case _:
                return []

    def _end(self, data: Mapping[str, Any]) -> list[ServerEvent]:
        usage = Usage(**data["usage"]) if data["usage"] else None
        if "failed" in data:
            return self._events.fail(Failed(**data["failed"]), usage)
        if "final" not in data:
            return self._events.cancel(usage)
        told = data["final"]
        calls = tuple(ToolCall(**call) for call in told["calls"])
        reply = FinalReply(**{**told, "calls": calls})
        try:
            return self._events.complete(reply, usage, at=data["at"])
        except StreamDiverged:
            again = self._events.withdraw()
            return [*again, *self._events.complete(reply, usage, at=data["at"])]

    def _item_id(self, prefix: str) -> str:
        self._items += 1
        made = hashlib.sha256(f"{self._id}/{self._items}".encode()).hexdigest()
        return f"{prefix}_{made[:48]}"
