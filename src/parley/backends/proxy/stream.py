"""A remote agent's answer, put together from its bytes: pure, and the same for any chunking."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from parley.agent.providers.calls import CallFragments
from parley.agent.providers.render import count, reasoning_in
from parley.agent.providers.sse import SseError, SseEvent, SseParser
from parley.agent.question_text import MOST_SHOWN
from parley.protocol import (
    REMOTE_AGENT,
    CallDelta,
    ReasoningDelta,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolStarted,
    Usage,
)

__all__ = ["ApprovalWanted", "Happening", "RemoteReply", "StepOver"]

_MOST_BYTES: Final = 32 * 1024 * 1024
_MOST_WHOLE_BYTES: Final = 16 * 1024 * 1024
_MOST_TEXT: Final = 1_000_000
_MOST_CALLS_OPEN: Final = 1000
_MOST_QUESTION: Final = 2 * MOST_SHOWN

_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # it becomes a part of an address
_CUT_SHORT: Final = frozenset({"length", "max_tokens", "model_length", "content_filter"})
_TOO_MUCH: Final = "sent more than any answer can be"
_NO_ERROR: Final = object()


@dataclass(frozen=True, slots=True)
class StepOver:
    """The text so far was a message of its own; what follows is another."""

    text: str


@dataclass(frozen=True, slots=True)
class ApprovalWanted:
    """The remote agent waits until somebody allows or refuses `call`.

    `lasting`: a yes may hold from now on. Without a `question` it is too long to be shown.
    """

    id: str
    question: str
    call: ToolCall
    lasting: bool = False


Happening: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | CallDelta
    | TextReset
    | ToolStarted
    | ToolFinished
    | StepOver
    | ApprovalWanted
)


class RemoteReply:
    """Feed it bytes in any pieces, take what they say.

    `is_over`: the answer was said to be complete. `is_done`: so was the stream. `fault` is why it
    is no answer, `error` what the far end itself said went wrong.
    """

    def __init__(self, *, most_bytes: int = _MOST_BYTES, most_text: int = _MOST_TEXT) -> None:
        self.has_begun = False
        self.is_over = False
        self.is_done = False
        self.fault: str | None = None
        self.run_id = ""
        self._error: object = _NO_ERROR
        self._bytes_left = most_bytes
        self._text_left = most_text
        self._head: bytes | None = b""  # until it is known what kind of answer this is
        self._whole: list[bytes] | None = None
        self._whole_size = 0
        self._parser = SseParser()
        self._pieces: list[str] = []
        self._thoughts: list[str] = []  # of each step
        self._thought: list[str] = []
        self._half = ""  # of a letter whose other half comes with the next piece
        self._fragments = CallFragments()
        self._open_calls: dict[str, ToolCall] = {}
        self._finish_reason = ""
        self._model = ""
        self._usage: Mapping[str, Any] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing more of the answer is of use."""
        return self.is_done or self.fault is not None or self.has_error

    @property
    def text(self) -> str:
        """The text of the message that is being said."""
        return "".join(self._pieces)

    @property
    def reasoning(self) -> str:
        """What the model thought in all steps."""
        return "\n\n".join(filter(None, (*self._thoughts, "".join(self._thought))))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that whoever asked is to run."""
        return self._fragments.finish()

    @property
    def is_whole(self) -> bool:
        """False when a length limit cut the text, or a content filter."""
        return self._finish_reason not in _CUT_SHORT

    @property
    def was_withheld(self) -> bool:
        return self._finish_reason == "content_filter"

    @property
    def has_error(self) -> bool:
        return self._error is not _NO_ERROR

    @property
    def error(self) -> object:
        return self._error if self.has_error else None

    @property
    def was_stopped(self) -> bool:
        """A far end that is Parley broke the answer off: it goes down, or was told to stop."""
        return isinstance(self._error, dict) and self._error.get("code") == "answer_stopped"

    @property
    def usage(self) -> Usage | None:
        if self._usage is None:
            return None
        return Usage(
            provider="proxy",
            model=self._model,
            input_tokens=count(self._usage, "prompt_tokens"),
            output_tokens=count(self._usage, "completion_tokens"),
            cached_tokens=count(self._usage.get("prompt_tokens_details"), "cached_tokens"),
            reasoning_tokens=count(
                self._usage.get("completion_tokens_details"), "reasoning_tokens"
            ),
        )

    def feed(self, chunk: bytes) -> list[Happening]:
        """Take a piece of the answer."""
        if self.is_closed:
            return []
        piece = chunk[: self._bytes_left]
        self._bytes_left -= len(piece)
        happened = self._feed(piece)
        if len(piece) < len(chunk) and not self.is_closed:
            self.fault = _TOO_MUCH
        return happened

    def finish(self) -> list[Happening]:
        """The far end ended the answer in good order."""
        if self.is_closed:
            return []
        if self._whole is not None:
            return self._read_whole(b"".join(self._whole))
        try:
            return self._take_events(self._parser.finish())
        except SseError:
            self.fault = _TOO_MUCH
            return []

    # ── bytes ──

    def _feed(self, piece: bytes) -> list[Happening]:
        if self._head is not None:
            piece = (self._head + piece).lstrip(_SPACE)
            start = piece.removeprefix(_BOM).lstrip(_SPACE)
            if not start or (len(piece) < len(_BOM) and _BOM.startswith(piece)):
                self._head = piece[: len(_BOM)]
                return []
            self._head = None
            if start[:1] in b"{[<":
                self._whole, piece = [], start
        if self._whole is not None:
            self._whole.append(piece)
            self._whole_size += len(piece)
            if self._whole_size > _MOST_WHOLE_BYTES:
                self._whole.clear()
                self.fault = _TOO_MUCH
            return []
        try:
            return self._take_events(self._parser.feed(piece))
        except SseError:
            self.fault = _TOO_MUCH
            return []

    def _read_whole(self, raw: bytes) -> list[Happening]:
        """One JSON object instead of a stream."""
        value = _object(raw.decode("utf-8", "replace"))
        if value is None:
            what = "a web page" if raw.startswith(b"<") else "something that is no JSON object"
            self.fault = f"answered with {what}"
            return []
        happened = self._take_chunk(value)
        self.is_over = self.is_done = True
        return happened

    # ── events ──

    def _take_events(self, events: list[SseEvent]) -> list[Happening]:
        happened: list[Happening] = []
        for event in events:
            if self.is_closed:
                break
            happened += self._take(event)
        return happened

    def _take(self, event: SseEvent) -> list[Happening]:
        if event.event == "message":
            if event.data.strip() == "[DONE]":
                self.is_over = self.is_done = True
                return []
            chunk = _object(event.data)
            return [] if chunk is None else self._take_chunk(chunk)
        said = _object(event.data)
        match event.event:
            case "error":
                self._error = event.data if said is None else said.get("error", said)
                return []
            case "parley.step":
                text = self.text
                self._thoughts.append("".join(self._thought))
                self._withdraw()
                return [StepOver(text)] if text.strip() else []
            case "parley.reset":
                self._withdraw()
                self._fragments = CallFragments()
                return [TextReset()]
            case "parley.tool":
                return self._take_tool(said or {})
            case "parley.approval":
                return self._take_approval(said or {})
            case _:
                return []

    def _take_chunk(self, chunk: Mapping[str, Any]) -> list[Happening]:
        if chunk.get("error"):
            self._error = chunk["error"]
            return []
        if not self.run_id and _RUN_ID.fullmatch(_short(chunk.get("id"))):
            self.run_id = chunk["id"]
        self._model = self._model or _short(chunk.get("model"))
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        choices = chunk.get("choices")
        text = thought = ""
        calls: list[CallDelta] = []
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index"):
                continue  # one answer was asked for
            self.has_begun = True
            delta = choice.get("delta") or choice.get("message")
            if isinstance(delta, dict):
                thought += reasoning_in(delta)
                text += _text(delta.get("content")) or _text(delta.get("refusal"))
                calls += self._fragments.add(delta.get("tool_calls"))
            if choice.get("finish_reason"):
                self._finish_reason = _short(choice["finish_reason"])
                self.is_over = True
        return [*self._think(thought), *self._say(text), *calls]

    def _think(self, thought: str) -> list[Happening]:
        if not thought:
            return []
        if len(thought) > self._text_left:
            self.fault = _TOO_MUCH
            return []
        self._text_left -= len(thought)
        self._thought.append(_well_formed(thought))
        return [ReasoningDelta(self._thought[-1])]

    def _say(self, text: str) -> list[Happening]:
        text = self._half + text
        self._half = ""
        if _SURROGATE.search(text):
            if "\ud800" <= text[-1] <= "\udbff":
                text, self._half = text[:-1], text[-1]
            text = _well_formed(text)
        if len(text) > self._text_left:
            self.fault = _TOO_MUCH
            text = text[: self._text_left]
        if not text:
            return []
        self._text_left -= len(text)
        self._pieces.append(text)
        return [TextDelta(text, outside=REMOTE_AGENT)]

    def _withdraw(self) -> None:
        self._pieces.clear()
        self._thought.clear()
        self._half = ""

    def _take_tool(self, said: Mapping[str, Any]) -> list[Happening]:
        call = _call(said, id_name="call_id")
        if call is None:
            return []
        if said.get("phase") == "started":
            if len(self._open_calls) < _MOST_CALLS_OPEN:
                self._open_calls[call.id] = call
            return [ToolStarted(call)]
        if said.get("phase") == "finished":
            return [ToolFinished(self._open_calls.pop(call.id, call), ok=said.get("ok") is True)]
        return []

    def _take_approval(self, said: Mapping[str, Any]) -> list[Happening]:
        asked = said.get("call")
        call = _call(asked, id_name="id") if isinstance(asked, dict) else None
        name = _short(said.get("id"))
        if call is None or not name:
            return []
        question = said.get("question")
        if not isinstance(question, str) or not question.strip():
            question = f"May {call.name} run?"
        # What a person does not see in full they cannot allow.
        shown = question if len(question) <= _MOST_QUESTION else ""
        return [ApprovalWanted(name, shown, call, lasting=said.get("lasting") is True)]


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, dict))
        return "".join(p["text"] for p in parts if isinstance(p.get("text"), str))
    return ""


def _well_formed(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _short(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= 200 and value.isprintable() else ""


def _call(said: Mapping[str, Any], *, id_name: str) -> ToolCall | None:
    call_id, name, arguments = said.get(id_name), said.get("name"), said.get("arguments")
    if not _short(call_id) or not _short(name):
        return None
    return ToolCall(_short(call_id), _short(name), arguments if isinstance(arguments, dict) else {})
