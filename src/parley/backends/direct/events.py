"""What an agent says, read from its frames: typed, checked, and nothing else. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from parley.agent.question_text import MOST_SHOWN

__all__ = [
    "MOST_TEXT",
    "AgentEvent",
    "BadFrame",
    "Callback",
    "Chunk",
    "End",
    "ErrorSaid",
    "FileSent",
    "Goodbye",
    "Question",
    "Reset",
    "Status",
    "ToolUsed",
    "Working",
    "read_event",
]

MOST_TEXT: Final = 4_000_000
"""So many characters an answer has at most."""
_MOST_TOKENS: Final = 1 << 40
_LONGEST_NAME: Final = 200
_LONGEST_QUESTION: Final = 2 * MOST_SHOWN
_MOST_FILES: Final = 32


class BadFrame(ValueError):
    """No frame of the protocol; the text goes on after “The agent at …”, and quotes nothing."""


@dataclass(frozen=True, slots=True)
class Status:
    """The agent is there, and knows this beyond plain text; `pending` where it told."""

    capabilities: frozenset[str] = frozenset()
    pending: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    text: str


@dataclass(frozen=True, slots=True)
class End:
    tokens_used: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True)
class ErrorSaid:
    code: object
    details: object


@dataclass(frozen=True, slots=True)
class Goodbye:
    pass


@dataclass(frozen=True, slots=True)
class Working:
    pass


@dataclass(frozen=True, slots=True)
class Reset:
    pass


@dataclass(frozen=True, slots=True)
class ToolUsed:
    name: str
    state: Literal["started", "finished"]
    ok: bool
    id: str


@dataclass(frozen=True, slots=True)
class FileSent:
    """`data` is still in base64."""

    name: str
    media_type: str
    data: str


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    question: str
    tool: str
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Callback:
    """`pending` is None where the agent does not tell how much is still to come."""

    id: str
    text: str
    files: tuple[FileSent, ...] = ()
    pending: int | None = None


AgentEvent: TypeAlias = (
    Status
    | Chunk
    | End
    | ErrorSaid
    | Goodbye
    | Working
    | Reset
    | ToolUsed
    | FileSent
    | Question
    | Callback
)


def read_event(text: str) -> AgentEvent:
    """The event of one text message; raises `BadFrame`."""
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrame("sent something that is no JSON") from None
    if not isinstance(frame, dict):
        raise BadFrame("sent JSON that is no object")
    kind = frame.get("type")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise BadFrame("sent a frame of a type that is not known")
    return read(frame)


def _status(frame: Mapping[str, Any]) -> Status:
    return Status(_capabilities(frame), _count(frame, "pending"))


def _chunk(frame: Mapping[str, Any]) -> Chunk:
    return Chunk(_text(frame, "text"))


def _end(frame: Mapping[str, Any]) -> End:
    return End(_count(frame, "tokens_used") or 0, _count(frame, "pending") or 0)


def _error(frame: Mapping[str, Any]) -> ErrorSaid:
    return ErrorSaid(frame.get("code"), frame.get("details"))


def _capabilities(frame: Mapping[str, Any]) -> frozenset[str]:
    names = frame.get("capabilities")
    if names is None:
        return frozenset()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _wrong(frame, "capabilities")
    return frozenset(names)


def _tool(frame: Mapping[str, Any]) -> ToolUsed:
    name, state = _name(frame, "name"), frame.get("state")
    if state not in {"started", "finished"}:
        raise _wrong(frame, "state")
    call = _name(frame, "id") if frame.get("id") is not None else name
    return ToolUsed(name, state, ok=frame.get("ok", True) is True, id=call)


def _file(frame: Mapping[str, Any]) -> FileSent:
    media_type = frame.get("media_type")
    if media_type is not None and not isinstance(media_type, str):
        raise _wrong(frame, "media_type")
    return FileSent(_text(frame, "name"), (media_type or "")[:_LONGEST_NAME], _text(frame, "data"))


def _question(frame: Mapping[str, Any]) -> Question:
    question = _text(frame, "question")
    if len(question) > _LONGEST_QUESTION:
        # What a person does not see in full they cannot allow.
        raise _wrong(frame, "question")
    tool = _name(frame, "tool") if frame.get("tool") is not None else "tool"
    return Question(_name(frame, "id"), question, tool, frame.get("lasting") is True)


def _callback(frame: Mapping[str, Any]) -> Callback:
    files = frame.get("attachments")
    if files is None:
        files = []
    if not isinstance(files, list) or len(files) > _MOST_FILES:
        raise _wrong(frame, "attachments")
    if not all(isinstance(item, dict) for item in files):
        raise _wrong(frame, "attachments")
    text = _text(frame, "text")
    if len(text) > MOST_TEXT:
        raise _wrong(frame, "text")
    return Callback(
        _name(frame, "id"),
        text,
        tuple(_file({**item, "type": "CALLBACK"}) for item in files),
        _count(frame, "pending"),
    )


def _text(frame: Mapping[str, Any], name: str) -> str:
    value = frame.get(name)
    if not isinstance(value, str):
        raise _wrong(frame, name)
    return value


def _name(frame: Mapping[str, Any], name: str) -> str:
    value = _text(frame, name)
    if not value or len(value) > _LONGEST_NAME or not value.isprintable():
        raise _wrong(frame, name)
    return value


def _count(frame: Mapping[str, Any], name: str) -> int | None:
    value = frame.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_TOKENS:
        raise _wrong(frame, name)
    return value


def _wrong(frame: Mapping[str, Any], name: str) -> BadFrame:
    return BadFrame(f"sent {frame['type']} with a `{name}` that is none")


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], AgentEvent]]] = {
    "STATUS": _status,
    "AGENT_EVENT_TEXT_CHUNK": _chunk,
    "AGENT_EVENT_END": _end,
    "ERROR": _error,
    "GRACEFUL_DISCONNECT": lambda _: Goodbye(),
    "AGENT_EVENT_WORKING": lambda _: Working(),
    "AGENT_EVENT_RESET": lambda _: Reset(),
    "AGENT_EVENT_TOOL": _tool,
    "AGENT_EVENT_FILE": _file,
    "APPROVAL_ASKED": _question,
    "CALLBACK": _callback,
}
