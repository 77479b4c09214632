"""What the gateway lends to the tools of one turn, bound to its claim."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from parley.agent.hands import Delegated, MemoryHand
from parley.agent.processes import Processes
from parley.agent.tools.base import ToolError
from parley.gateway.background import Background
from parley.gateway.delivery import Deliveries
from parley.gateway.lanes import Lanes, RunningTurn
from parley.gateway.owners import Owners
from parley.gateway.persist import until_stored
from parley.gateway.tasks import TASK_PLATFORM, Tasks
from parley.protocol import (
    Behalf,
    ChatMessage,
    InboundMessage,
    SessionSource,
    ToolCall,
    person_of,
)
from parley.storage.contract import Draft, InboxMessage, Store
from parley.storage.hands import Conversation, FoundEntry, Job, JobRecord, Work, WorkKind

__all__ = ["Lender", "TurnHands"]

_CLARIFY = "clarify"


@dataclass(frozen=True, slots=True)
class Lender:
    """The parts of one profile that are lent to its turns."""

    store: Store
    lanes: Lanes
    deliveries: Deliveries
    processes: Processes
    tasks: Tasks
    background: Background
    owners: Owners
    patience: float

    def to(self, running: RunningTurn, source: SessionSource, *, asks: bool) -> TurnHands:
        return TurnHands(self, running, source, asks=asks)


class TurnHands:
    """Lent to one turn: its conversation, its person, its generation, and no other."""

    def __init__(
        self, lender: Lender, running: RunningTurn, source: SessionSource, *, asks: bool
    ) -> None:
        self._lender = lender
        self._running = running
        self._claim = running.claim
        self._source = source
        self.can_clarify = asks and running.request is None
        self.memory: MemoryHand | None = None
        self._listed: Sequence[Conversation] = ()

    @property
    def processes(self) -> Processes:
        return self._lender.processes

    @property
    def person(self) -> str:
        return self._claim.payer.user

    @property
    def is_owner(self) -> bool:
        # A task may not look further than the conversation that delegated it, and others who
        # speak in an owner's turn no further than they may themselves.
        spoke = (self._source, *(taken.message.source for taken in self._running.messages))
        owns = self._lender.owners.owns
        # Nor where others read along: what is found is told there.
        return all(
            owns(source) and source.chat_type == "dm" and source.platform != TASK_PLATFORM
            for source in spoke
        )

    @property
    def _looks_as(self) -> str:
        """Whose other conversations the turn may look at: nobody's where several people speak."""
        running = self._running
        alone = running.request is not None or running.people <= {self.person}
        return self.person if alone else ""

    def is_leaving(self) -> bool:
        return self._lender.lanes.is_draining

    # ── background work ──

    async def begin_work(
        self, id: str, kind: WorkKind, *, notify: bool, body: Mapping[str, Any]
    ) -> bool:
        work = self._work(id, kind, notify=notify, body=body)
        try:
            return await until_stored(partial(self._lender.store.begin_work, work))
        except asyncio.CancelledError:
            # Its row may be stored, and nothing would ever begin, or end, under it.
            if not self.is_leaving():
                await asyncio.shield(self._lender.store.end_work(id, "stopped"))
            raise

    async def works(self) -> Sequence[Work]:
        return await self._lender.store.works(lane=self._claim.lane, running=False)

    async def delegate(
        self,
        id: str,
        goal: str,
        *,
        tools: Sequence[str] | None,
        background: bool,
        outside: str = "",
    ) -> Delegated:
        if self._source.platform == TASK_PLATFORM:
            raise ToolError("A delegated task cannot delegate further.")
        tasks = self._lender.tasks
        work = self._work(id, "task", notify=background, body={"turn": self._claim.turn})
        behalf = Behalf(self.person, self._claim.session, self._source.platform)
        try:
            begun = await tasks.begin(work, goal, behalf=behalf, tools=tools, outside=outside)
        except asyncio.CancelledError:
            if not self.is_leaving():
                await asyncio.shield(tasks.stop(work))
            raise
        if background:
            self._lender.background.follow(begun)
            return Delegated(id)
        return await tasks.result(id)

    def _work(self, id: str, kind: WorkKind, *, notify: bool, body: Mapping[str, Any]) -> Work:
        claim = self._claim
        return Work(
            id=id,
            kind=kind,
            lane=claim.lane,
            session=claim.session,
            generation=claim.generation,
            source=claim.source,
            notify=notify,
            body=body,
        )

    # ── people ──

    async def clarify(self, call: str, question: str) -> bool:
        running = self._running
        arrived = running.listen()
        try:
            before = await self._said_before(call)
            await self._post(f"ask:{call}", question, self._claim.lane, self._claim.source)
            async with asyncio.timeout(self._lender.patience):
                while True:
                    arrived.clear()  # before looking: what comes meanwhile is looked at again
                    if any(self._answers(said, before) for said in await running.behind()):
                        break
                    await arrived.wait()
        except TimeoutError:
            running.listens = False
            return False
        running.more = True
        return True

    async def _said_before(self, call: str) -> int:
        """The last message that waited when the question was first put: it is no answer to it."""
        known = await self._asked()
        if known.get("call") == call:
            return int(known["before"])
        before = max((said.id for said in await self._running.behind()), default=0)
        await self.put_note(_CLARIFY, json.dumps({"call": call, "before": before}))
        return before

    async def listen_again(self, unanswered: Sequence[ToolCall]) -> None:
        """In a turn that is resumed: what it had asked still waits for the person's word."""
        call = str((await self._asked()).get("call", ""))
        is_ours = call.startswith(f"{self._claim.session}.{self._claim.turn}.")
        if is_ours and any(call.endswith(f".{each.id}") for each in unanswered):
            self._running.listens = True

    async def _asked(self) -> dict[str, Any]:
        asked: dict[str, Any] = json.loads(await self.note(_CLARIFY) or "{}")
        return asked

    def _answers(self, said: InboxMessage, before: int) -> bool:
        """The person who was asked speaks; not others in the room, a mail, or what reports."""
        message = said.message
        return (
            said.id > before
            and not message.internal
            and not message.outside
            and person_of(message.source) == person_of(self._source)
        )

    async def send(self, call: str, text: str, *, to: str | None = None, outside: str = "") -> str:
        name = f"say:{call}"
        if to is None:
            await self._post(name, text, self._claim.lane, self._claim.source)
            return "this conversation"
        found = _by_id(await self.conversations(), to)
        if found is None:
            raise ToolError(f"There is no conversation `{to}` that you may write to.")
        if found.lane == self._claim.lane:
            return await self.send(call, text)
        said = ChatMessage("assistant", text, outside=outside or None)
        await self._post(name, text, found.lane, found.source, said=said)
        return found.title or found.source.chat_name or found.lane

    async def conversations(self) -> Sequence[Conversation]:
        found = await self._lender.store.conversations(None if self.is_owner else self._looks_as)
        self._listed = [each for each in found if self._reaches(each.source)]
        return self._listed

    def known_conversation(self, id: str) -> Conversation | None:
        return _by_id(self._listed, id)

    def _reaches(self, source: SessionSource) -> bool:
        surface = self._lender.deliveries.surface(source)
        return surface is not None and surface.supports_async_delivery

    async def _post(
        self,
        name: str,
        text: str,
        lane: str,
        source: SessionSource,
        *,
        said: ChatMessage | None = None,
    ) -> None:
        deliveries, store = self._lender.deliveries, self._lender.store
        handover = deliveries.knows_repeats(source)
        draft = Draft(dedupe=name, source=source, text=text, kind="notice", handover=handover)
        owner = self._claim.owner
        leased = await until_stored(partial(store.post, lane, draft, said=said, owner=owner))
        deliveries.hand_over(leased, source.platform)

    # ── time ──

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
        message = InboundMessage(
            self._claim.source, text, event_id=id, internal=True, outside=outside
        )
        job = Job(id, self._claim.lane, message, at=at, cron=cron, every=every, timezone=timezone)
        await until_stored(partial(self._lender.lanes.schedule, job))

    async def plans(self) -> Sequence[JobRecord]:
        return await self._lender.store.jobs(self._claim.lane)

    async def cancel_plan(self, id: str) -> bool:
        return await until_stored(partial(self._lender.store.unschedule, id, lane=self._claim.lane))

    # ── what is kept ──

    async def search(self, query: str, *, limit: int) -> Sequence[FoundEntry]:
        find = self._lender.store.search_entries
        if self.is_owner:
            return await find(query, limit=limit)
        return await find(query, person=self._looks_as, lane=self._claim.lane, limit=limit)

    async def note(self, name: str) -> str | None:
        return await self._lender.store.note(self._claim.session, name)

    async def put_note(self, name: str, value: str | None) -> None:
        await until_stored(partial(self._lender.store.put_note, self._claim.session, name, value))


def _by_id(found: Sequence[Conversation], id: str) -> Conversation | None:
    """By its session's id or its lane. Names are no ids: others choose theirs."""
    return next((each for each in found if id in (each.lane, each.session)), None)
