"""The contract of a provider: who turns a request into a streamed model reply."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from parley.protocol import (
    CallDelta,
    ChatMessage,
    ParleyError,
    ReasoningDelta,
    TextDelta,
    TextReset,
    ToolCall,
    ToolSpec,
    Usage,
    Wishes,
)

__all__ = [
    "ErrorKind",
    "ModelEvent",
    "ModelReply",
    "ModelRequest",
    "Provider",
    "ProviderError",
    "ToolSpec",
    "is_small",
]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything a model needs for one reply."""

    system: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    wishes: Wishes = field(default_factory=Wishes)
    """What a program wants; `max_output_tokens` above is the tightest limit already."""
    longest_wait: float = 60.0
    """Seconds that may be spent in all on waiting before the server is asked again."""
    for_program: bool = False
    """A program asked, not a person: what cannot be done of it is refused."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The end of a stream: the whole reply.

    `complete` is False when the length limit cut it, or the content filter: then it is `filtered`.
    """

    text: str
    usage: Usage
    tool_calls: tuple[ToolCall, ...] = ()
    complete: bool = True
    filtered: bool = False


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | CallDelta | TextReset | ModelReply

ErrorKind: TypeAlias = Literal[
    "auth",  # the key is missing or wrong
    "unreachable",  # nobody answers at that address
    "timeout",
    "rate_limited",
    "overloaded",  # 5xx, or the server says so
    "too_long",  # the request does not fit the model's window
    "not_found",  # the server has no such model or address
    "refused",  # any other 4xx: asking again changes nothing
    "unsupported",  # this model or server does not offer what was asked for
    "broken",  # the answer was not understood, or ended half-way
]


class ProviderError(ParleyError):
    """A model call failed. The text is one sentence for the person, and never holds a secret."""

    def __init__(
        self,
        sentence: str,
        *,
        kind: ErrorKind,
        status: int | None = None,
        retry_after: float | None = None,
        public: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(sentence)
        self.public = public
        self.detail = detail
        self.kind: ErrorKind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def worth_retrying(self) -> bool:
        return self.kind in {"unreachable", "timeout", "rate_limited", "overloaded", "broken"}


def is_small(provider: object) -> bool:
    """Whether this model does better with a short prompt and a few tools.

    Only a provider that knows the size of its model says so.
    """
    return bool(getattr(provider, "is_small", False))


class Provider(Protocol):
    """One model behind one address.

    `stream` yields text and thoughts as they come and ends with exactly one `ModelReply`, or raises
    `ProviderError`. Closing the iterator early stops the work, remote work included.
    """

    @property
    def label(self) -> str:
        """The provider's name in the settings, e.g. `openai`."""

    @property
    def model(self) -> str: ...

    @property
    def context_window(self) -> int:
        """Tokens that fit, prompt and reply together."""

    @property
    def offers_tools(self) -> bool:
        """Whether tools may be put into a request."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]: ...

    async def check(self) -> None:
        """Make one small live call; raise `ProviderError` when it fails."""

    async def close(self) -> None: ...
