"""A pair of hands for one conversation, kept in memory: what the gateway lends, small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from parley.agent.hands import Delegated, MemoryHand
from parley.agent.tools import Tool, ToolContext, ToolResult
from parley.protocol import InboundMessage, SessionSource, ToolCall
from parley.storage.hands import Conversation, FoundEntry, Job, JobRecord, Work, WorkKind
from tests.agent.builders import context

if TYPE_CHECKING:
    from parley.agent.processes import Processes

__all__ = ["SmallHands", "use", "with_hands"]


@dataclass
class SmallHands:
    """It does what the contract says, and lets a test see what was done."""

    person: str = "desk:anna"
    is_owner: bool = False
    can_clarify: bool = True
    notes: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    elsewhere: list[Conversation] = field(default_factory=list)
    sent: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    entries: list[FoundEntry] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    answers: bool = True
    tasks: list[tuple[str, str, Sequence[str] | None, bool]] = field(default_factory=list)
    outcome: Delegated = field(default_factory=lambda: Delegated("", "42"))
    memory: MemoryHand | None = None

    @property
    def processes(self) -> Processes:
        raise NotImplementedError

    def is_leaving(self) -> bool:
        return False

    async def begin_work(
        self, id: str, kind: WorkKind, *, notify: bool, body: Mapping[str, Any]
    ) -> bool:
        raise NotImplementedError

    async def works(self) -> Sequence[Work]:
        return ()

    async def delegate(
        self,
        id: str,
        goal: str,
        *,
        tools: Sequence[str] | None,
        background: bool,
        outside: str = "",
    ) -> Delegated:
        self.tasks.append((id, goal, tools, background))
        return Delegated(id) if background else replace(self.outcome, id=id)

    async def clarify(self, call: str, question: str) -> bool:
        self.asked.append((call, question))
        return self.answers

    async def send(self, call: str, text: str, *, to: str | None = None, outside: str = "") -> str:
        self.sent[call] = (text, to)
        return to or "this conversation"

    async def conversations(self) -> Sequence[Conversation]:
        return self.elsewhere

    def known_conversation(self, id: str) -> Conversation | None:
        return next((each for each in self.elsewhere if id in (each.lane, each.session)), None)

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
        here = SessionSource("desk", "one")
        message = InboundMessage(here, text, f"job:{id}", internal=True, outside=outside)
        job = Job(id, "key", message, at=at, every=every, cron=cron, timezone=timezone)
        self.jobs[id] = JobRecord(job, at or 2_000_000_000.0)

    async def plans(self) -> Sequence[JobRecord]:
        return list(self.jobs.values())

    async def cancel_plan(self, id: str) -> bool:
        return self.jobs.pop(id, None) is not None

    async def search(self, query: str, *, limit: int) -> Sequence[FoundEntry]:
        words = query.casefold().split()
        found = [e for e in self.entries if all(word in e.excerpt.casefold() for word in words)]
        return found[:limit]

    async def note(self, name: str) -> str | None:
        return self.notes.get(name)

    async def put_note(self, name: str, value: str | None) -> None:
        if value is None:
            self.notes.pop(name, None)
        else:
            self.notes[name] = value


def with_hands(
    hands: SmallHands | None, *, call: str = "turn 1 call 1", delivers: bool = True
) -> ToolContext:
    return replace(context(), hands=hands, call=call, async_delivery=delivers)


async def use(
    tool: Tool[Any],
    hands: SmallHands | None,
    *,
    call: str = "turn 1 call 1",
    delivers: bool = True,
    platform: str = "desk",
    **arguments: object,
) -> ToolResult:
    """One call of a tool, as the loop makes it."""
    given = with_hands(hands, call=call, delivers=delivers)
    given = replace(given, source=SessionSource(platform, "one"))
    return await tool.run(ToolCall("c1", tool.name, arguments), given)
