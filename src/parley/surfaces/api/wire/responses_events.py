"""`POST /v1/responses` with `stream`: the answer as the events that the official client reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from parley.protocol import CallDelta, Failed, Final, ToolCall, Usage
from parley.surfaces.api.wire.encode import encode, quote
from parley.surfaces.api.wire.ids import new_id
from parley.surfaces.api.wire.responses_out import (
    ItemStatus,
    ResponseStatus,
    call_item,
    incomplete_details,
    message_item,
    reasoning_item,
    reasoning_part,
    response_error,
    response_outcome,
    response_status,
    text_part,
)
from parley.surfaces.api.wire.streamed_calls import CallPiece, StreamedCalls
from parley.surfaces.api.wire.streamed_text import StreamedText

__all__ = ["ResponseEvents", "ServerEvent"]


class ServerEvent(NamedTuple):
    """The name of a server-sent event, and its data as JSON."""

    name: str
    data: bytes


class ResponseEvents:
    """The events of one response, numbered, in the order in which they are asked for.

    Each step of the turn that has text is a message of its own. Text that was sent is never taken
    back: an answer that begins again goes on from there, or `StreamDiverged` is raised.
    """

    def __init__(self, echo: Mapping[str, Any], *, item_id: Callable[[str], str] = new_id) -> None:
        """`echo` is the response as it was when it began; `item_id` makes ids of its items."""
        self._echo = echo
        self._item_id = item_id
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._open: _OpenMessage | None = None
        self._thought: _OpenMessage | None = None
        self._text = StreamedText()
        self._calls = StreamedCalls()
        self._call_places: list[dict[str, Any]] = []

    @property
    def one_value(self) -> bool:
        """Whether the text is to be JSON: then there is one message, and no other text."""
        return bool(self._echo["text"]["format"]["type"] != "text")

    @property
    def output(self) -> list[dict[str, Any]]:
        """The items so far."""
        return self._output

    def start(self) -> list[ServerEvent]:
        """That it was taken on."""
        response = self._object("in_progress")
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def text(self, text: str) -> list[ServerEvent]:
        """A further piece of text."""
        return self._send(self._text.add(text))

    def _send(self, text: str) -> list[ServerEvent]:
        if not text:
            return []
        events = [] if self._open else self._begin_message()
        message = self._open
        if message is None:
            raise AssertionError("a message was just begun")
        message.pieces.append(text)
        events.append(ServerEvent(_DELTA, message.delta(text, self._next())))
        return events

    def reasoning(self, text: str) -> list[ServerEvent]:
        """A further piece of what the model thinks."""
        events = []
        thought = self._thought
        if thought is None:
            thought = self._thought = self._opened("rs", _THOUGHT_DELTA)
            begun = reasoning_item(thought.id, None, "in_progress")
            events = self._added(thought, begun, reasoning_part(""))
        thought.pieces.append(text)
        events.append(ServerEvent(_THOUGHT_DELTA, thought.delta(text, self._next())))
        return events

    def step(self) -> list[ServerEvent]:
        """The text so far was a message; what follows is another."""
        if self.one_value:
            # Who asked for JSON reads one value: text before a tool call is not part of it.
            return self.begin_again()
        self._text.end_message()
        return [*self._end_thought("completed"), *self._end_message("completed")]

    def begin_again(self) -> list[ServerEvent]:
        """The text since the last step is said once more from its start."""
        self._text.begin_again()
        self._calls.begin_again()
        return self._end_thought("completed")

    def withdraw(self) -> list[ServerEvent]:
        """The text since the last step does not count: its message stays, empty and incomplete."""
        self._text.clear()
        if self._open is not None:
            self._open.pieces.clear()
        return [*self._end_thought("incomplete"), *self._end_message("incomplete")]

    def call(self, delta: CallDelta) -> list[ServerEvent]:
        """A further piece of a call that the program is to make."""
        return self._add_to_call(self._calls.add(delta))

    def calls(self, calls: tuple[ToolCall, ...]) -> list[ServerEvent]:
        """The calls that the program is to make."""
        events = [*self._end_thought("completed"), *self._end_message("completed")]
        for piece in self._calls.rest_of(calls):
            events += self._add_to_call(piece)
            events += self._end_call(piece.index, piece.call)
        return events

    def complete(
        self, ending: Final, usage: Usage | None = None, *, at: int | None = None
    ) -> list[ServerEvent]:
        """The end of a turn that was answered: what is still missing of it, then the whole."""
        status = response_status(ending)
        events = self._rest_of(ending)
        events += self._end_thought("completed")
        events += self._end_message(status)
        events += self.calls(ending.calls)
        incomplete = incomplete_details(ending)
        whole = self._object(status, usage=usage, completed_at=at, incomplete=incomplete)
        return [*events, self._event(f"response.{status}", response=whole)]

    def fail(self, failed: Failed, usage: Usage | None = None) -> list[ServerEvent]:
        """The end of a turn that could not be answered."""
        return self._break_off("failed", response_error(failed), usage)

    def cancel(self, usage: Usage | None = None) -> list[ServerEvent]:
        """The end of a turn that was stopped; clients know no event for it but that of failure."""
        stopped = {"code": "server_error", "message": "The response was stopped."}
        return self._break_off("cancelled", stopped, usage)

    # ── items ──

    def _rest_of(self, ending: Final) -> list[ServerEvent]:
        events = self._send(self._text.rest_of(ending.text))
        said = any(item["type"] != "reasoning" for item in self._output)
        if events or self._open or said or ending.calls:
            return events
        return self._begin_message()

    def _begin_message(self) -> list[ServerEvent]:
        events = self._end_thought("completed")
        message = self._open = self._opened("msg", _DELTA, {"logprobs": []})
        begun = message_item(message.id, None, "in_progress")
        return [*events, *self._added(message, begun, text_part(""))]

    def _opened(
        self, prefix: str, kind: str, more: Mapping[str, Any] | None = None
    ) -> _OpenMessage:
        return _OpenMessage(self._item_id(prefix), len(self._output), kind, more or {})

    def _added(
        self, opened: _OpenMessage, item: dict[str, Any], part: dict[str, Any]
    ) -> list[ServerEvent]:
        """An item that begins takes its place at once: another may begin before it is done."""
        self._output.append(item)
        return [
            self._event("response.output_item.added", output_index=opened.index, item=item),
            self._event("response.content_part.added", **opened.place, part=part),
        ]

    def _done(
        self, opened: _OpenMessage, item: dict[str, Any], part: dict[str, Any]
    ) -> list[ServerEvent]:
        self._output[opened.index] = item
        return [
            self._event("response.content_part.done", **opened.place, part=part),
            self._event("response.output_item.done", output_index=opened.index, item=item),
        ]

    def _end_thought(self, status: ItemStatus) -> list[ServerEvent]:
        thought, self._thought = self._thought, None
        if thought is None:
            return []
        text = thought.text
        return [
            self._event("response.reasoning_text.done", **thought.place, text=text),
            *self._done(thought, reasoning_item(thought.id, text, status), reasoning_part(text)),
        ]

    def _end_message(self, status: ItemStatus) -> list[ServerEvent]:
        message, self._open = self._open, None
        if message is None:
            return []
        text = message.text
        done = {**message.place, "text": text, "logprobs": []}
        return [
            self._event("response.output_text.done", **done),
            *self._done(message, message_item(message.id, text, status), text_part(text)),
        ]

    def _add_to_call(self, piece: CallPiece) -> list[ServerEvent]:
        events: list[ServerEvent] = []
        if piece.is_new:
            events = [*self._end_thought("completed"), *self._end_message("completed")]
            index, item_id = len(self._output), self._item_id("fc")
            self._call_places.append({"item_id": item_id, "output_index": index})
            begun = call_item(item_id, piece.call, "", "in_progress")
            self._output.append(begun)
            added = self._event("response.output_item.added", output_index=index, item=begun)
            events.append(added)
        if piece.arguments:
            place = self._call_places[piece.index]
            events.append(self._event(f"{_ARGUMENTS}.delta", **place, delta=piece.arguments))
        return events

    def _end_call(self, number: int, call: ToolCall) -> list[ServerEvent]:
        place, written = self._call_places[number], self._calls.arguments(number)
        index = place["output_index"]
        item = self._output[index] = call_item(place["item_id"], call, written)
        return [
            self._event(f"{_ARGUMENTS}.done", **place, name=call.name, arguments=written),
            self._event("response.output_item.done", output_index=index, item=item),
        ]

    # ── events ──

    def _break_off(
        self, status: Literal["failed", "cancelled"], error: dict[str, str], usage: Usage | None
    ) -> list[ServerEvent]:
        events = [*self._end_thought("incomplete"), *self._end_message("incomplete")]
        for item in self._output:
            if item["status"] == "in_progress":
                item["status"] = "incomplete"  # a call, half written
        broken = self._object(status, usage=usage, error=error)
        return [*events, self._event("response.failed", response=broken)]

    def _object(self, status: ResponseStatus, **more: Any) -> dict[str, Any]:
        return {**self._echo, **response_outcome(status, self._output, **more)}

    def _event(self, kind: str, **fields: Any) -> ServerEvent:
        numbered = {"type": kind, "sequence_number": self._next(), **fields}
        return ServerEvent(kind, encode(numbered))

    def _next(self) -> int:
        self._number += 1
        return self._number - 1


_DELTA = "response.output_text.delta"
_THOUGHT_DELTA = "response.reasoning_text.delta"
_ARGUMENTS = "response.function_call_arguments"


class _OpenMessage:
    """A message or a thought that is being written. What its deltas share is written once."""

    __slots__ = ("_before", "id", "index", "pieces", "place")

    def __init__(self, item_id: str, index: int, kind: str, more: Mapping[str, Any]) -> None:
        self.id = item_id
        self.index = index
        self.pieces: list[str] = []
        self.place: dict[str, Any] = {"item_id": item_id, "output_index": index, "content_index": 0}
        shared = encode({"type": kind, **self.place, **more})
        self._before = shared.removesuffix(b"}")

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def delta(self, text: str, number: int) -> bytes:
        return b'%b,"sequence_number":%d,"delta":%b}' % (self._before, number, quote(text))
