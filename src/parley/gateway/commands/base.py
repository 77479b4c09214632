"""What a command is: a name, a line of help, and a function from a call to a reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from parley.agent.budget import Budget
from parley.agent.menu import Menu
from parley.agent.processes import Processes
from parley.backends.base import ModelMenu
from parley.gateway.approvals import Approvals
from parley.gateway.chats import Chats
from parley.gateway.delivery import Deliveries
from parley.gateway.failures import error_text, is_operator
from parley.gateway.lanes import Lanes, RunningTurn
from parley.gateway.owners import Owners
from parley.gateway.people import People
from parley.gateway.tasks import Tasks
from parley.protocol import ParleyError, SessionSource, count, person_of
from parley.sessions.store import SessionStore
from parley.storage.contract import Effect, Nothing, Outcome, Said, SessionRecord, Store

if TYPE_CHECKING:
    from parley.memory.desk import MemoryDesk
    from parley.memory.places import Places

__all__ = ["Command", "CommandCall", "MemoryReach", "Reach", "Reply", "count"]


class MemoryReach(Protocol):
    """What one profile remembers, as commands use it."""

    @property
    def desk(self) -> MemoryDesk: ...

    def places(self, lane: str, source: SessionSource) -> Places: ...

    def compact(self, lane: str, session: str, source: SessionSource, name: str) -> bool:
        """Begin to fold a conversation; False when that is under way already.

        What became of it is told later, once under `name`, where the surface can.
        """


@dataclass(frozen=True, slots=True)
class Reach:
    """The parts of one profile that commands may look at and use.

    `memory` is None where nothing is remembered, or whoever answers does so by themselves.
    """

    sessions: SessionStore
    store: Store
    lanes: Lanes
    deliveries: Deliveries
    approvals: Approvals
    owners: Owners
    processes: Processes
    tasks: Tasks
    budget: Budget
    people: People
    chats: Chats
    menu: Menu
    models: ModelMenu | None
    memory: MemoryReach | None


@dataclass(frozen=True, slots=True)
class CommandCall:
    """One use of a command: what was said, where, and what it may look at.

    `id` names this use for ever. `insists`: what the platform cannot do now is tried again by
    itself; else whoever asked is told.
    """

    id: int
    argument: str
    lane: str
    source: SessionSource
    session: SessionRecord
    running: RunningTurn | None
    reach: Reach
    insists: bool = False
    later: bool = True
    """Whether something can be said here after the answer."""

    @property
    def verb(self) -> str:
        """What people there write before a command's name."""
        surface = self.reach.deliveries.surface(self.source)
        return "/" if surface is None else surface.verb

    @property
    def said(self) -> Said | None:
        """What the running turn has said so far."""
        return self.running.said_so_far if self.running is not None else None

    @property
    def store(self) -> Store:
        return self.reach.store

    @property
    def models(self) -> ModelMenu | None:
        return self.reach.models

    @property
    def person(self) -> str:
        return person_of(self.source)

    @property
    def is_owner(self) -> bool:
        return self.reach.owners.owns(self.source)

    @property
    def is_operator(self) -> bool:
        """Whether the answer is read by those alone who run the agent."""
        return is_operator(self.reach.owners, self.source)

    def error_text(self, error: ParleyError) -> str:
        return error_text(error, operator=self.is_operator)


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer, what to change in the same moment, and what to do once that is stored."""

    text: str | Callable[[Outcome], str]
    effect: Effect = field(default_factory=Nothing)
    then: Callable[[Outcome], None] | None = None

    def render(self, outcome: Outcome) -> str:
        return self.text if isinstance(self.text, str) else self.text(outcome)


@dataclass(frozen=True, slots=True)
class Command:
    """`uses_chat`: it goes on with the conversation, which an archived one does not."""

    name: str
    summary: str
    run: Callable[[CommandCall], Awaitable[Reply]]
    argument: str = ""
    uses_chat: bool = False
