"""What a slash command is: a name, a line of help, and a function from a call to a reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from parley.backends.base import ModelMenu
from parley.gateway.approvals import Approvals
from parley.gateway.lanes import RunningTurn
from parley.protocol import SessionSource
from parley.storage.contract import Effect, Nothing, Outcome, Said, SessionRecord, Store

__all__ = ["Command", "CommandCall", "Reply", "count"]


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


@dataclass(frozen=True, slots=True)
class CommandCall:
    """One use of a command, and what it may look at."""

    argument: str
    lane: str
    source: SessionSource
    session: SessionRecord
    running: RunningTurn | None
    store: Store
    models: ModelMenu | None
    approvals: Approvals

    @property
    def said(self) -> Said | None:
        """What the running turn has said so far."""
        return self.running.said_so_far if self.running is not None else None


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer, and what to change in the same moment."""

    text: str | Callable[[Outcome], str]
    effect: Effect = field(default_factory=Nothing)

    def render(self, outcome: Outcome) -> str:
        return self.text if isinstance(self.text, str) else self.text(outcome)


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    summary: str
    run: Callable[[CommandCall], Awaitable[Reply]]
    argument: str = ""
