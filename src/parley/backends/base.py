"""The contract of a backend: who answers a turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from parley.agent.budget import Purse
from parley.agent.hands import Ask, Hands
from parley.agent.person import UserSettings
from parley.agent.providers.base import Provider
from parley.profiles import Profile
from parley.protocol import (
    Attachment,
    ChatMessage,
    HistoryEntry,
    Request,
    SessionSource,
    ToolSpec,
    TurnEvent,
)

if TYPE_CHECKING:
    from parley.agent.tokens import Calibration

__all__ = ["Backend", "Mailbox", "ModelMenu", "Prefix", "Standing", "Thread", "Turn"]


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation by the names that people have for it: `matrix`, `@alice:example.org`, `C1`."""

    platform: str
    user_id: str
    chat_id: str


class Mailbox(Protocol):
    """What a backend may bring in outside of a turn, and what it may keep over a restart."""

    async def post(
        self,
        lane: str,
        id: str,
        text: str,
        *,
        session: str | None,
        attachments: tuple[Attachment, ...] = (),
    ) -> bool:
        """Say something in a conversation, once under this id; False when it is there no more.

        Where the lane has gone on to another session than `session`, or that is None, it is only
        shown, and is no part of what is said there. On return it is durable.
        """

    async def keep(self, name: str, value: str | None) -> None: ...
    async def kept(self, prefix: str) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Turn:
    """All that a backend knows of a turn.

    `history` is what was said before it. `progress` is the turn itself so far: the messages to
    answer, and after a restart the steps already taken. `steer` takes in messages that arrived
    meanwhile; `check` raises when the turn is no longer wanted. `request` is what a program asked
    for. `ask` puts a call to whoever may allow it. `hands` is what tools may use of the gateway.
    `purse` pays for model calls; None where nothing is limited. `sends_files`: the reply may have
    files with it. `person` is what whoever is answered has set for themselves. `summary` stands
    for what was said before the history, and `memory` is what is remembered of the place, as the
    prompt has them. `thread` names the conversation to another agent: who speaks and which of
    their chats it is; it is another one after `/new`. `told` is the end of the history that a
    program brought along with this turn: nobody here has answered it. `times_undone` counts what
    `/undo` and `/retry` took back in the session. `outside` names sources of text in the prompt
    before the history that nobody in the conversation wrote. `strangers` are the people in the
    history whose words count as text from outside here.
    """

    id: int
    attempt: int
    profile: Profile
    session_key: str
    session_id: str
    source: SessionSource
    history: tuple[HistoryEntry, ...]
    progress: tuple[ChatMessage, ...]
    provider: str | None
    model: str | None
    async_delivery: bool
    steer: Callable[[], Awaitable[tuple[ChatMessage, ...]]]
    check: Callable[[], Awaitable[None]]
    request: Request | None = None
    ask: Ask | None = None
    hands: Hands | None = None
    purse: Purse | None = None
    sends_files: bool = False
    person: UserSettings = field(default_factory=UserSettings)
    summary: str = ""
    memory: str = ""
    thread: Callable[[], Awaitable[Thread]] | None = None
    told: tuple[ChatMessage, ...] = ()
    times_undone: Callable[[], Awaitable[int]] | None = None
    outside: str = ""
    strangers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Standing:
    """What the beginning of a conversation's prompts is made from, as in its `Turn`s."""

    source: SessionSource
    provider: str | None = None
    model: str | None = None
    sends_files: bool = False
    person: UserSettings = field(default_factory=UserSettings)
    summary: str = ""
    memory: str = ""
    remembers: bool = True
    """Whether something is remembered there, so that the tool for it is offered."""
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Prefix:
    """How every prompt of a conversation begins, byte for byte, and who is asked.

    `learns`: this model is good enough to say what is worth remembering. `alone`: it does one
    thing at a time, so nobody is to wait behind housekeeping.
    """

    provider: Provider
    system: str
    tools: tuple[ToolSpec, ...]
    learns: bool
    alone: bool
    lean: bool = False
    """A small model: it is asked for facts and summaries in short requests of their own."""
    outside: str = ""
    """Who wrote what it says of tools, where that is neither Parley nor its operator."""


class ModelMenu(Protocol):
    """The models a person may choose from, where the backend leaves that to them."""

    def names(self) -> tuple[str, ...]:
        """The providers to choose from."""

    def describe(self, provider: str | None, model: str | None) -> str:
        """Who answers with this choice; raises a ParleyError when nobody can."""

    def is_file(self, provider: str, model: str) -> bool:
        """Whether this choice is the path of a file on this machine."""


class Backend(Protocol):
    """`run` yields what happens and ends with `Final` or `Failed`.

    A `StepTaken` is journalled before the iterator is asked for the next event. Closing the
    iterator stops the work, remote work included.
    """

    @property
    def models(self) -> ModelMenu | None: ...

    @property
    def calibration(self) -> Calibration | None:
        """What is known of how its models count; None where others count."""

    def about(self) -> str:
        """Who answers, in a few words; raises a ParleyError when nobody can."""

    async def health(self) -> str | None:
        """What is wrong with who answers, in a sentence; None when nothing is known to be."""

    def starting(self) -> tuple[str, ...]:
        """What it has begun to reach and not heard of yet, such as MCP servers."""

    def start(self, mailbox: Mailbox) -> None:
        """Begin what takes a while, such as to reach other servers; do not wait for it."""

    def warm(self) -> None:
        """Begin to get ready for a first turn that is sure to come; do not wait for it."""

    def remembers(self, platform: str) -> bool:
        """Whether what is said there is ours to remember, and not that of a remote agent."""

    async def prefix(self, standing: Standing) -> Prefix | None:
        """How prompts begin there; None where whoever answers remembers by themselves."""

    def run(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]: ...

    async def close(self) -> None: ...
