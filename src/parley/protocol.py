"""The vocabulary every room shares: where a message came from, what was said, what a turn does.

Imports nothing of ours. What flows between rooms is one of these frozen values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, TypeAlias

__all__ = [
    "REMOTE_AGENT",
    "ApprovalAsked",
    "Attachment",
    "Behalf",
    "CallDelta",
    "ChatMessage",
    "Failed",
    "Final",
    "HistoryEntry",
    "HistoryTrimmed",
    "InboundMessage",
    "ParleyError",
    "ReasoningDelta",
    "Report",
    "Request",
    "Role",
    "SessionSource",
    "StepTaken",
    "TextDelta",
    "TextReset",
    "ToolCall",
    "ToolExample",
    "ToolFinished",
    "ToolSpec",
    "ToolStarted",
    "TurnEvent",
    "Usage",
    "UsageReported",
    "Wishes",
    "count",
    "person_of",
    "size_of_text",
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


def person_of(source: SessionSource) -> str:
    """Who speaks there, as settings and grants name them: `platform:user`."""
    return f"{source.platform}:{source.user_id or source.chat_id}"


_BACKGROUND = "background work"
REMOTE_AGENT = "a remote agent"
"""How text that another agent wrote is named."""
_WEIGHT_OF_A_PICTURE = 5_000
_MOST_TEXT_OF_A_FILE = 200_000


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message, already stored at `path`.

    A picture that was given as a web address keeps it there: only the model's provider opens it.
    """

    name: str
    media_type: str
    path: str
    size: int
    detail: str | None = None
    """Of a picture: how closely a program wants it looked at, in OpenAI's words."""

    @property
    def is_remote(self) -> bool:
        return self.path.startswith(("https://", "http://"))

    @property
    def weight(self) -> int:
        """What it adds to a prompt, in bytes of text, more or less."""
        if self.media_type.startswith("image/"):
            return _WEIGHT_OF_A_PICTURE
        return min(self.size, _MOST_TEXT_OF_A_FILE) + len(self.name)

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "name": self.name,
            "media_type": self.media_type,
            "path": self.path,
            "size": self.size,
        }
        return record if self.detail is None else {**record, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class Report:
    """What ended in the background belongs to the session and generation that began it.

    Where those are gone, `notice` is shown instead, and nothing enters the new conversation.
    """

    session: str
    generation: int
    notice: str


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """One event of a surface. `event_id` is the platform's own: the same id is the same event.

    With a `request` it comes from a program, which waits for the one answer to it. With a
    `report` it comes from background work. An `internal` one comes from the gateway itself.
    Where `later` is False whoever sent it leaves with the answer: nothing reaches them after it.
    `outside` names where its text comes from when whoever sent it did not write it, such as a mail.
    """

    source: SessionSource
    text: str
    event_id: str
    attachments: tuple[Attachment, ...] = ()
    internal: bool = False
    request: Request | None = None
    report: Report | None = None
    later: bool = True
    outside: str = ""

    def as_said(self) -> ChatMessage:
        """The message as a line of the transcript."""
        outside = self.outside or (_BACKGROUND if self.report is not None else None)
        note = "internal" if self.internal else None
        return ChatMessage(
            "user", self.text, attachments=self.attachments, note=note, outside=outside
        )

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
        if self.request is not None:
            record["request"] = self.request.to_dict()
        if self.report is not None:
            report = self.report
            record["report"] = [report.session, report.generation, report.notice]
        if not self.later:
            record["later"] = False
        if self.outside:
            record["outside"] = self.outside
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        return cls(
            source=SessionSource.from_dict(record["source"]),
            text=record["text"],
            event_id=record.get("event_id", ""),
            attachments=tuple(Attachment(**item) for item in record.get("attachments", ())),
            internal=record.get("internal", False),
            request=Request.from_dict(record["request"]) if "request" in record else None,
            report=Report(*record["report"]) if "report" in record else None,
            later=record.get("later", True),
            outside=record.get("outside", ""),
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


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def size_of_text(text: str) -> int:
    """Its length in bytes, and more where it is not Latin.

    A letter of such a script is a token or two of its own, where a Latin word is one.
    """
    if text.isascii():
        return len(text)
    length = len(text.encode(errors="replace"))
    return length + (length - len(text)) * 9 // 4


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a transcript, as the model sees it.

    `note` marks what is not an ordinary message: `interrupted` (a reply that was cut short),
    `failed` (a turn that ended in an error), `unknown-outcome` (a tool result nobody saw),
    `internal` (not a person's words: background work reports, or something planned is due).
    """

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    attachments: tuple[Attachment, ...] = ()
    note: str | None = None
    name: str | None = None
    """Who of several speaks, as a program names them."""
    outside: str | None = None
    """Where the text comes from that nobody in the conversation wrote, such as a web address.
    None: as is usual for its role and tool; empty: it is Parley's own."""

    @property
    def size(self) -> int:
        """Its length in bytes, more or less; more where it is not Latin."""
        calls = sum(
            len(call.name) + size_of_text(str(call.arguments)) + 16 for call in self.tool_calls
        )
        # What the agent sends goes to people; the model never sees it.
        files = sum(item.weight for item in self.attachments) if self.role == "user" else 0
        return size_of_text(self.text) + calls + files

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
        if self.name is not None:
            record["name"] = self.name
        if self.outside is not None:
            record["outside"] = self.outside
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
            name=record.get("name"),
            outside=record.get("outside"),
        )


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A message of the transcript and its number there; `person` is who spoke in its turn.

    Its size is taken once: a long conversation is measured again with every turn.
    """

    id: int
    message: ChatMessage
    person: str = ""
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.message.size)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one model call cost. `input_tokens` includes `cached_tokens`; money in millionths.

    `output_tokens` includes `reasoning_tokens`, those of thoughts.
    """

    provider: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    micros: int = 0
    reasoning_tokens: int = 0

    def __add__(self, later: Usage) -> Usage:
        """Both together, under the name of the later one."""
        return Usage(
            later.provider,
            later.model,
            self.input_tokens + later.input_tokens,
            self.output_tokens + later.output_tokens,
            self.cached_tokens + later.cached_tokens,
            self.micros + later.micros,
            self.reasoning_tokens + later.reasoning_tokens,
        )


# ── what a program asks for ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ToolExample:
    """What a person might say, and the arguments of the call that does it."""

    says: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it. `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool | None = None
    """Whether a call must keep to `parameters` to the letter; None: as the provider does it."""
    example: ToolExample | None = None
    """For a model that learns a tool by example; others are not told."""

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return record if self.strict is None else {**record, "strict": self.strict}


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a program wants the model's reply made. What is None is as the settings say."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    reasoning_effort: str | None = None
    stop: tuple[str, ...] = ()
    tool_choice: Literal["auto", "none", "required"] | None = None
    tool: str | None = None
    """The one tool that must be called."""
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None
    """As OpenAI's chat completions has it: `{"type": "json_schema", "json_schema": {…}}`."""

    def to_dict(self) -> dict[str, Any]:
        named = ((name, getattr(self, name)) for name in _WISH_FIELDS)
        return {name: value for name, value in named if value not in (None, ())}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        known = {name: value for name, value in record.items() if name in _WISH_FIELDS}
        if "stop" in known:
            known["stop"] = tuple(known["stop"])
        return cls(**known)


_WISH_FIELDS = tuple(field.name for field in fields(Wishes))


@dataclass(frozen=True, slots=True)
class Behalf:
    """For whom a delegated task works: the person and the session that it is counted for.

    `platform` is where they speak: the task may use no tool that is not offered there.
    """

    user: str
    session: str
    platform: str


@dataclass(frozen=True, slots=True)
class Request:
    """What a program asks for along with its message. It has a turn of its own.

    `messages` is all that the program gave of the conversation, the part to be answered last.
    `lasting`: the turn goes on without the connection it came by, and after a restart; another
    is over when nobody waits for it. `can_ask`: whoever asked is told of approvals, and answers.
    """

    id: str
    messages: tuple[ChatMessage, ...]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    wishes: Wishes = field(default_factory=Wishes)
    lasting: bool = False
    can_ask: bool = False
    memory_key: str | None = None
    hops: int = 0
    """How many gateways handed it on before."""
    whole: bool = False
    """Whether `messages` is the whole conversation: what is missing in it was taken back."""
    appended: bool = False
    """Whether all of `messages` is new: it comes behind what is stored, which is not told again."""
    allowed: tuple[str, ...] | None = None
    """Of our own tools only these may be used; None: as the settings say."""
    behalf: Behalf | None = None
    later: bool = False
    """Whether what ends in the background may be told after the turn."""
    operator: bool = False
    """Whether the program may know why something failed: its key has the scope `admin`."""

    @property
    def must_call(self) -> bool:
        """Whether the reply must be a call of one of the program's own tools."""
        wishes = self.wishes
        return bool(self.tools) and bool(wishes.tool or wishes.tool_choice == "required")

    @property
    def earlier(self) -> tuple[ChatMessage, ...]:
        """What was said before, as the program tells it."""
        return self.messages[: self._asked_from]

    @property
    def asked(self) -> tuple[ChatMessage, ...]:
        """What is to be answered: everything after the last reply."""
        return self.messages[self._asked_from :]

    @property
    def _asked_from(self) -> int:
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index].role == "assistant":
                return index + 1
        return 0

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "id": self.id,
            "messages": [message.to_dict() for message in self.messages],
            "lasting": self.lasting,
        }
        if self.instructions:
            record["instructions"] = self.instructions
        if self.tools:
            record["tools"] = [tool.to_dict() for tool in self.tools]
        if wishes := self.wishes.to_dict():
            record["wishes"] = wishes
        if self.can_ask:
            record["can_ask"] = True
        if self.memory_key is not None:
            record["memory_key"] = self.memory_key
        if self.hops:
            record["hops"] = self.hops
        if self.whole:
            record["whole"] = True
        if self.appended:
            record["appended"] = True
        if self.allowed is not None:
            record["allowed"] = list(self.allowed)
        if self.behalf is not None:
            record["behalf"] = [self.behalf.user, self.behalf.session, self.behalf.platform]
        if self.later:
            record["later"] = True
        if self.operator:
            record["operator"] = True
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        return cls(
            id=record["id"],
            messages=tuple(ChatMessage.from_dict(item) for item in record["messages"]),
            instructions=record.get("instructions", ""),
            tools=tuple(ToolSpec(**item) for item in record.get("tools", ())),
            wishes=Wishes.from_dict(record.get("wishes", {})),
            lasting=record["lasting"],
            can_ask=record.get("can_ask", False),
            memory_key=record.get("memory_key"),
            hops=record.get("hops", 0),
            whole=record.get("whole", False),
            appended=record.get("appended", False),
            allowed=tuple(record["allowed"]) if "allowed" in record else None,
            behalf=Behalf(*record["behalf"]) if "behalf" in record else None,
            later=record.get("later", False),
            operator=record.get("operator", False),
        )


# ── what a running turn says ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A further piece of the reply. Ephemeral: only the final reply counts.

    `outside` is that of `Final`: what was said is kept when the turn is stopped.
    """

    text: str
    outside: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A further piece of what the model thinks before it replies. For programs alone."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A further piece of the arguments of a call, as the model writes them.

    `index` counts the calls of one reply. In a turn these are calls for the program that asked.
    """

    index: int
    id: str
    name: str
    arguments: str


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
    """The turn waits until a person allows or refuses `call`; they name it by its `id`.

    `lasting`: they may also allow it from now on.
    """

    call: ToolCall
    question: str
    id: str = ""
    lasting: bool = True


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
    """The turn's reply. `text` is what the person gets.

    `calls` are for the program that asked, which runs those tools itself. `complete` is False when
    the model's length limit cut the text, or its provider's content filter: then it is `filtered`.
    """

    text: str
    usage: Usage | None = None
    calls: tuple[ToolCall, ...] = ()
    complete: bool = True
    attachments: tuple[Attachment, ...] = ()
    """Files that go with it."""
    filtered: bool = False
    reasoning: str = ""
    """What the model thought, for a program: no part of the conversation."""
    outside: str | None = field(default=None, compare=False)
    """Who wrote it, where that is not the built-in agent."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn cannot be answered. `sentence` is for whoever runs the agent, `cause` for the log.

    `kind` tells a program what went wrong: that of the provider's error, or `internal`, `limit`.
    Everyone else is told `public`; where that is empty, a sentence for the kind. `detail` is what
    the model's server said of the request itself: programs may read it.
    """

    sentence: str
    cause: str = ""
    usage: Usage | None = None
    kind: str = "internal"
    retry_after: float | None = None
    public: str = ""
    detail: str = ""


TurnEvent: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | CallDelta
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
