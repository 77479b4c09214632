"""One profile, as a surface reaches it whose programs say themselves who is meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from parley.gateway.approvals import Answer
from parley.gateway.status import Introduction
from parley.profiles import Profile, profile_scope
from parley.protocol import ApprovalAsked, InboundMessage, SessionSource, person_of
from parley.storage.contract import (
    Entry,
    Receipt,
    RequestEvent,
    RequestRecord,
    SessionRecord,
    TurnResult,
)
from parley.storage.hands import JobRecord, Scope
from parley.storage.items import ItemStore, ResponseItems

if TYPE_CHECKING:
    from parley.gateway.serving import Serving

__all__ = ["ProfileDoor", "RecentExchange", "RequestRows"]


@dataclass(frozen=True, slots=True)
class RecentExchange:
    """Where a conversation was left: the last question, and what was said to it."""

    title: str
    asked: str = ""
    answered: str = ""
    stopped: bool = False


class RequestRows(ItemStore, Protocol):
    """What is kept of requests that outlive their connection: the part of the store for it."""

    async def open_request(
        self, record: RequestRecord, items: ResponseItems | None = None
    ) -> tuple[RequestRecord, bool]: ...
    async def request(self, id: str) -> RequestRecord | None: ...
    async def mark_request(
        self, id: str, state: Literal["queued", "running", "stopping"]
    ) -> bool: ...
    async def finish_request(
        self,
        id: str,
        state: Literal["done", "failed", "stopped"],
        result: Mapping[str, Any] | None,
        events: Sequence[tuple[str, Mapping[str, Any]]] = (),
        items: ResponseItems | None = None,
    ) -> list[RequestEvent] | None: ...
    async def delete_request(self, id: str) -> bool: ...
    async def add_request_events(
        self, id: str, events: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[RequestEvent]: ...
    async def request_events(
        self, id: str, *, after: int = 0, limit: int = 500
    ) -> list[RequestEvent]: ...
    async def last_request_event(self, id: str) -> int: ...
    async def open_requests(self) -> list[RequestRecord]: ...
    async def prune_requests(self, now: float) -> int: ...
    async def turn_result(self, dedupe: str) -> TurnResult | None: ...
    async def session_of(self, lane: str) -> SessionRecord | None: ...
    async def transcript(self, session: str, *, whole: bool = False) -> list[Entry]: ...
    async def delete_session(self, session: str, *, requests: bool = True) -> bool: ...
    async def sessions_under(
        self, lanes: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> list[SessionRecord]: ...
    async def jobs_under(
        self, lanes: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> list[JobRecord]: ...


class ProfileDoor:
    """The way in to one profile. `bind` lets a message in, and fixes whose it is."""

    def __init__(self, serving: Serving, bind: Callable[[InboundMessage], InboundMessage]) -> None:
        self._serving = serving
        self._bind = bind

    @property
    def profile(self) -> Profile:
        return self._serving.profile

    @property
    def attachments(self) -> Path:
        """Where files that come with messages are kept."""
        return self.profile.attachments

    @property
    def rows(self) -> RequestRows:
        return self._serving.store

    def introduce(self) -> Introduction:
        return self._serving.introduction()

    def bind(self, message: InboundMessage) -> InboundMessage:
        """The message with its account and this profile in it; raises unless it may come in."""
        return self._bind(message)

    async def admit(self, message: InboundMessage) -> Receipt:
        """Accept one that was bound; on return it is durable."""
        with profile_scope(self.profile):
            return await self._serving.admit(message)

    def named(self, message: InboundMessage) -> tuple[str, str]:
        """The lane that one that was bound goes to, and its name there."""
        return self._serving.intake.named(message)

    async def withdraw(self, lane: str, name: str) -> bool:
        """Nobody waits for the answer any more; whether that ended anything."""
        with profile_scope(self.profile):
            return await self._serving.intake.withdraw(lane, name)

    def asked(self, source: SessionSource) -> tuple[tuple[int, ApprovalAsked], ...]:
        """What the turn that runs in this conversation has asked, with the turn's number."""
        return self._serving.approvals.asked(self._lane(source))

    async def recent(self, source: SessionSource) -> RecentExchange | None:
        """Where this conversation was left; None when the next message begins a new one."""
        session = await self.rows.session_of(self._lane(source))
        if session is None or self._serving.intake.is_over(session, source.platform):
            return None
        said = [entry.message for entry in await self.rows.transcript(session.id)]
        people = [index for index, one in enumerate(said) if one.role == "user" and not one.note]
        if not people:
            return RecentExchange(session.title or "")
        replies = [one for one in said[people[-1] :] if one.role == "assistant" and one.text]
        last = replies[-1] if replies else None
        return RecentExchange(
            title=session.title or "",
            asked=said[people[-1]].text,
            answered=last.text if last else "",
            stopped=last is not None and last.note == "interrupted",
        )

    def _lane(self, source: SessionSource) -> str:
        return self.named(self.bind(InboundMessage(source, "", "lane")))[0]

    def approvals_waiting(self, lane: str) -> tuple[str, ...]:
        """The ids of what the turn that runs there has asked."""
        return tuple(asked.id for asked in self._serving.approvals.waiting(lane))

    def waits_for_approval(self, lane: str) -> bool:
        """Whether the turn that runs there has asked something."""
        return bool(self._serving.approvals.waiting(lane))

    async def owed(self, lane: str) -> int:
        """How much may still be said there without being asked."""
        return await self._serving.store.owed(lane)

    async def decide(
        self, lane: str, *, approval: str, allowed: bool, by: SessionSource, scope: Scope = "once"
    ) -> Answer:
        """Answer a question of the turn that runs in this lane."""
        return await self._serving.approvals.decide(
            lane,
            allowed=allowed,
            by=person_of(by),
            owner=self._serving.owners.owns(by),
            approval=approval,
            scope=scope,
        )
