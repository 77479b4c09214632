"""What the gateway lends to the tools of one turn. All of it is bound to that turn: its
conversation, its person, its generation. A tool can reach no other by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from parley.protocol import ApprovalAsked, ToolCall
from parley.storage.hands import Conversation, FoundEntry, JobRecord, Work, WorkKind
from parley.storage.memory import Fact, Forgotten

if TYPE_CHECKING:
    from parley.agent.processes import Processes

__all__ = ["Ask", "Asked", "Asking", "Delegated", "Hands", "MemoryHand"]


@dataclass(frozen=True, slots=True)
class Asking:
    """A call that needs a person's word: `name` is its name for ever, `what` what it will do.

    The rest is as in `parley.agent.tools.base.Wanted`.
    """

    call: ToolCall
    name: str
    what: str
    trigger: str | None = None
    owner: bool = False
    reasons: tuple[str, ...] = ()
    once: str = ""
    binding: str = ""


class Asked(Protocol):
    """A question to whoever may allow a call: tell of its `event`, then wait for the answer."""

    @property
    def event(self) -> ApprovalAsked | None:
        """None when nobody needs to be asked any more."""

    async def decided(self) -> str:
        """Why the call may not be made; empty when it may."""


class Ask(Protocol):
    """How a turn asks."""

    async def __call__(self, asking: Asking) -> Asked: ...

    async def is_open(self, name: str) -> bool:
        """Whether this call was asked about before, and is known to have never begun."""

    async def withdraw(self) -> None:
        """What this turn asked before it was resumed is not asked any more."""


@dataclass(frozen=True, slots=True)
class Delegated:
    """What became of a delegated task: `result` is None while it works on in the background.

    `outside` names the sources of text that it had read, and that nobody in a conversation wrote.
    """

    id: str
    result: str | None = None
    ok: bool = True
    outside: str = ""


class MemoryHand(Protocol):
    """What is remembered where this turn is: of the person, or of the chat that others read too.

    Each change is made once under the name of its call. What cannot be done is a `ToolError`.
    """

    async def search(self, query: str, *, limit: int) -> Sequence[Fact]: ...

    async def add(self, call: str, text: str, *, kind: str, outside: str = "") -> Fact:
        """`outside` names what the agent had read that nobody in the conversation wrote."""

    async def update(self, call: str, id: int, text: str, *, outside: str = "") -> Fact: ...

    async def forget(self, call: str, ids: Sequence[int]) -> Forgotten: ...


class Hands(Protocol):
    """Lent for one turn. What cannot be done is a `ToolError` or `ParleyError` with a sentence."""

    @property
    def processes(self) -> Processes: ...

    @property
    def person(self) -> str:
        """Who is answered, as `platform:user`."""

    @property
    def is_owner(self) -> bool: ...

    def is_leaving(self) -> bool:
        """Whether the gateway ends, and this turn is to be resumed by the next one."""

    @property
    def can_clarify(self) -> bool:
        """Whether the person sees a question while the turn waits, and can answer it."""

    # background work
    async def begin_work(
        self, id: str, kind: WorkKind, *, notify: bool, body: Mapping[str, Any]
    ) -> bool:
        """Note that something runs on after this turn; False when it was noted before."""

    async def works(self) -> Sequence[Work]:
        """What was begun in this conversation, what has ended included."""

    async def delegate(
        self,
        id: str,
        goal: str,
        *,
        tools: Sequence[str] | None,
        background: bool,
        outside: str = "",
    ) -> Delegated:
        """Let another agent of this profile work on `goal`, once under this id.

        In the background it returns at once; else when there is a result. `outside`: where text
        in the context comes from that nobody in the conversation wrote; the task is tainted too.
        """

    # people
    async def clarify(self, call: str, question: str) -> bool:
        """Ask the person, and wait until they say something: it is the next message of the turn.

        False when no word came in time.
        """

    async def send(self, call: str, text: str, *, to: str | None = None, outside: str = "") -> str:
        """Say something now, here or in another conversation of this person; tells where.

        `outside` as in `delegate`: the other conversation is tainted too.
        """

    async def conversations(self) -> Sequence[Conversation]:
        """Where this person may have something said."""

    def known_conversation(self, id: str) -> Conversation | None:
        """The one of this id, if this turn has listed it."""

    # time
    async def plan(
        self,
        id: str,
        text: str,
        *,
        at: float | None = None,
        every: float | None = None,
        cron: str | None = None,
        timezone: str = "UTC",
        outside: str = "",
    ) -> None:
        """Let `text` come into this conversation by itself, then. `outside` as in `delegate`."""

    async def plans(self) -> Sequence[JobRecord]: ...
    async def cancel_plan(self, id: str) -> bool: ...

    # what is kept
    async def search(self, query: str, *, limit: int) -> Sequence[FoundEntry]: ...
    async def note(self, name: str) -> str | None: ...
    async def put_note(self, name: str, value: str | None) -> None: ...

    @property
    def memory(self) -> MemoryHand | None:
        """None where nothing is remembered."""
