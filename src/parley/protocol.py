"""The vocabulary every room shares: where a message came from, what was said, what a turn does.

Imports nothing of ours. What flows between rooms is one of these frozen values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, TypeAlias

__all__ = [
    "ApprovalAsked",
    "Attachment",
    "ChatMessage",
    "Failed",
    "Final",
    "HistoryEntry",
    "HistoryTrimmed",
    "InboundMessage",
    "ParleyError",
    "Role",
    "SessionSource",
    "StepTaken",
    "TextDelta",
    "TextReset",
    "ToolCall",
    "ToolFinished",
    "ToolStarted",
    "TurnEvent",
    "Usage",
    "UsageReported",
]


class ParleyError(Exception):
    """Something went wrong that a person can understand: its text is one clear sentence."""


# ── where a message comes from ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SessionSource:
    """Exactly where one message came from, and therefore where its answer goes."""

    platform: str
    chat_id: str = ""
    chat_type: str = "dm"
    user_id: str | None = None
    user_id_alt: str | None = None
    user_name: str | None = None
    chat_name: str | None = None
    thread_id: str | None = None
    account: str | None = None
    guild_id: str | None = None
    profile: str | None = None

    def to_dict(self) -> dict[str, str]:
        return {
            name: value for name in _SOURCE_FIELDS if (value := getattr(self, name)) is not None
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        return cls(**{name: value for name, value in record.items() if name in _SOURCE_FIELDS})


_SOURCE_FIELDS = tuple(field.name for field in fields(SessionSource))


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message, already stored at `path`."""

    name: str
    media_type: str
    path: str
    size: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "media_type": self.media_type,
            "path": self.path,
            "size": self.size,
        }


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """One event of a surface. `event_id` is the platform's own: the same id is the same event."""

    source: SessionSource
    text: str
    event_id: str
    attachments: tuple[Attachment, ...] = ()
    internal: bool = False

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "source": self.source.to_dict(),
            "text": self.text,
            "event_id": self.event_id,
        }
        if self.attachments:
            record["attachments"] = [item.to_dict() for item in self.attachments]
        if self.internal:
            record["internal"] = True
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        return cls(
            source=SessionSource.from_dict(record["source"]),
            text=record["text"],
            event_id=record.get("event_id", ""),
            attachments=tuple(Attachment(**item) for item in record.get("attachments", ())),
            internal=record.get("internal", False),
        )


# ── what is said in a session ─────────────────────────────────────────────────────────────────

Role: TypeAlias = Literal["user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model asks for a tool. `arguments` is what it wrote, parsed."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "arguments": dict(self.arguments)}


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a transcript, as the model sees it.

    `note` marks what is not an ordinary message: `interrupted` (a reply that was cut short),
    `failed` (a turn that ended in an error), `unknown-outcome` (a tool result nobody saw).
    """

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    attachments: tuple[Attachment, ...] = ()
    note: str | None = None

    @property
    def size(self) -> int:
        """Its length in bytes, more or less."""
        calls = sum(len(call.name) + len(str(call.arguments)) + 16 for call in self.tool_calls)
        return len(self.text.encode(errors="replace")) + calls

    def to_dict(self) -> dict[str, Any]:
        # By hand: this runs for every message, and `asdict` copies all it meets.
        record: dict[str, Any] = {"role": self.role, "text": self.text}
        if self.tool_calls:
            record["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        if self.tool_call_id is not None:
            record["tool_call_id"] = self.tool_call_id
        if self.tool_name is not None:
            record["tool_name"] = self.tool_name
        if self.attachments:
            record["attachments"] = [item.to_dict() for item in self.attachments]
        if self.note is not None:
            record["note"] = self.note
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        return cls(
            role=record["role"],
            text=record.get("text", ""),
            tool_calls=tuple(ToolCall(**call) for call in record.get("tool_calls", ())),
            tool_call_id=record.get("tool_call_id"),
            tool_name=record.get("tool_name"),
            attachments=tuple(Attachment(**item) for item in record.get("attachments", ())),
            note=record.get("note"),
        )


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A message of the transcript and its number there.

    Its size is taken once: a long conversation is measured again with every turn.
    """

    id: int
    message: ChatMessage
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.message.size)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one model call cost in tokens. `input_tokens` includes `cached_tokens`."""

    provider: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


# ── what a running turn says ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A further piece of the reply. Ephemeral: only the final reply counts."""

    text: str


@dataclass(frozen=True, slots=True)
class TextReset:
    """What was streamed since the last step is withdrawn; the model starts its reply again."""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolFinished:
    call: ToolCall
    ok: bool


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """The turn waits until a person allows or refuses `call`."""

    call: ToolCall
    question: str


@dataclass(frozen=True, slots=True)
class UsageReported:
    usage: Usage


@dataclass(frozen=True, slots=True)
class StepTaken:
    """Messages that now belong to the transcript. Journalled before the turn goes on."""

    messages: tuple[ChatMessage, ...]
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class HistoryTrimmed:
    """The history no longer fits: later turns start at the entry `keep_from`."""

    keep_from: int


@dataclass(frozen=True, slots=True)
class Final:
    """The turn's reply. `text` is what the person gets."""

    text: str
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn cannot be answered. `sentence` is for the person, `cause` for the log."""

    sentence: str
    cause: str = ""
    usage: Usage | None = None


TurnEvent: TypeAlias = (
    TextDelta
    | TextReset
    | ToolStarted
    | ToolFinished
    | ApprovalAsked
    | UsageReported
    | StepTaken
    | HistoryTrimmed
    | Final
    | Failed
)
