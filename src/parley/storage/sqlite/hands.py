"""What tools stand on, in the store on SQLite: each call one operation, or a few small ones."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from parley.protocol import ChatMessage
from parley.storage.contract import Delivery, Draft, StoreUnavailable
from parley.storage.hands import (
    Conversation,
    FoundEntry,
    Grant,
    Job,
    JobRecord,
    Limit,
    Overrun,
    Payer,
    Question,
    QuestionState,
    Reservation,
    Scope,
    Spent,
    Work,
    WorkState,
)
from parley.storage.sqlite import clock, notes, posts, questions, search, spending, works
from parley.storage.sqlite.engine import Engine

__all__ = ["SqliteHands"]


class SqliteHands:
    """The part of `SqliteStore` that keeps what tools began, asked, spent, planned and noted."""

    _engine: Engine

    # ── background work ──

    async def begin_work(self, work: Work) -> bool:
        return await self._engine.write(lambda db: works.begin(db, work, now=time.time()))

    async def work(self, id: str) -> Work | None:
        return await self._engine.read(lambda db: works.get(db, id))

    async def works(
        self, *, session: str | None = None, lane: str | None = None, running: bool = True
    ) -> list[Work]:
        return await self._engine.glance(
            lambda db: works.listing(db, session=session, lane=lane, running=running)
        )

    async def end_work(
        self, id: str, state: WorkState, result: Mapping[str, Any] | None = None
    ) -> bool:
        return await self._engine.write(
            lambda db: works.end(db, id, state, result, now=time.time())
        )

    async def is_running(self, turn: int) -> bool:
        return await self._engine.read(lambda db: works.is_running(db, turn))

    async def owed(self, lane: str) -> int:
        return await self._engine.read(lambda db: works.owed(db, lane))

    async def is_under_way(self, lane: str) -> bool:
        return await self._engine.read(lambda db: works.is_under_way(db, lane))

    async def prune_work(self, before: float) -> int:
        return await self._engine.write(lambda db: works.prune(db, before))

    # ── questions and grants ──

    async def put_question(self, question: Question) -> Question:
        return await self._engine.write(lambda db: questions.put(db, question, now=time.time()))

    async def question(self, id: str) -> Question | None:
        return await self._engine.read(lambda db: questions.get(db, id))

    async def question_of(self, call: str) -> Question | None:
        return await self._engine.read(lambda db: questions.of_call(db, call))

    async def use_answer(self, id: str) -> bool:
        return await self._engine.write(lambda db: questions.use(db, id))

    async def questions(self, lane: str) -> list[Question]:
        return await self._engine.read(lambda db: questions.waiting(db, lane, now=time.time()))

    async def settle_question(
        self, id: str, state: QuestionState, *, by: str | None = None, scope: Scope = "once"
    ) -> bool:
        return await self._engine.write(
            lambda db: questions.settle(db, id, state, by=by, scope=scope, now=time.time())
        )

    async def is_granted(self, *, session: str, person: str, tool: str, digest: str) -> bool:
        return await self._engine.read(
            lambda db: questions.is_granted(
                db, session=session, person=person, tool=tool, digest=digest
            )
        )

    async def grants(self, person: str) -> list[Grant]:
        return await self._engine.read(lambda db: questions.grants(db, person))

    async def revoke_grants(self, person: str, id: int | None = None) -> int:
        return await self._engine.write(lambda db: questions.revoke(db, person, id))

    # ── spending ──

    async def reserve(self, reservation: Reservation, limits: Sequence[Limit]) -> Overrun | None:
        return await self._engine.write(
            lambda db: spending.reserve(db, reservation, limits, now=time.time())
        )

    async def spent(self, payer: Payer, limits: Sequence[Limit]) -> list[Spent]:
        return await self._engine.write(
            lambda db: spending.spent(db, payer, limits, now=time.time())
        )

    # ── time ──

    async def schedule(self, job: Job) -> None:
        await self._engine.write(lambda db: clock.schedule(db, job, now=time.time()))

    async def unschedule(self, job_id: str, *, lane: str | None = None) -> bool:
        return await self._engine.write(lambda db: clock.unschedule(db, job_id, lane=lane))

    async def jobs(self, lane: str) -> list[JobRecord]:
        return await self._engine.read(lambda db: clock.planned(db, lane))

    async def jobs_under(
        self, lanes: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> list[JobRecord]:
        return await self._engine.read(lambda db: clock.under(db, lanes, limit=limit, after=after))

    # ── what was said ──

    async def post(
        self, lane: str, draft: Draft, *, said: ChatMessage | None = None, owner: str | None = None
    ) -> list[Delivery]:
        return await self._engine.write(
            lambda db: posts.post(db, lane, draft, said=said, owner=owner, now=time.time())
        )

    async def index_entries(self, limit: int = 500) -> bool:
        return await self._engine.write(lambda db: search.index(db, limit))

    async def search_entries(
        self, query: str, *, person: str | None = None, lane: str | None = None, limit: int = 10
    ) -> list[FoundEntry]:
        try:
            while await self.index_entries():
                pass
        except StoreUnavailable:
            pass  # what was taken in before can still be found
        return await self._engine.search(
            lambda db: search.find(db, query, person=person, lane=lane, limit=limit)
        )

    async def _purge_words(self) -> None:
        """Words that were deleted leave the search index, and so the file, piece by piece."""
        more = await self._engine.write(lambda db: search.merge(db, begin=True))
        while more:
            more = await self._engine.write(lambda db: search.merge(db, begin=False))

    async def conversation_at(self, lane: str) -> Conversation | None:
        return await self._engine.read(lambda db: search.conversation_at(db, lane))

    async def conversations(self, person: str | None, *, limit: int = 50) -> list[Conversation]:
        return await self._engine.read(lambda db: search.conversations(db, person, limit=limit))

    # ── notes and settings ──

    async def note(self, session: str, name: str) -> str | None:
        return await self._engine.read(lambda db: notes.note(db, session, name))

    async def put_note(self, session: str, name: str, value: str | None) -> None:
        await self._engine.write(lambda db: notes.put_note(db, session, name, value))

    async def person_setting(self, person: str, name: str) -> str | None:
        return await self._engine.read(lambda db: notes.setting(db, person, name))

    async def put_person_setting(self, person: str, name: str, value: str | None) -> None:
        await self._engine.write(lambda db: notes.put_setting(db, person, name, value))
