"""The store on SQLite: the contract's calls, each one operation on the writer or the reader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection, Cursor
from typing import Any, Literal

from parley.protocol import ChatMessage, InboundMessage, Usage
from parley.storage.contract import (
    Claim,
    Committed,
    Delivery,
    Draft,
    Effect,
    Entry,
    InboxKind,
    InboxMessage,
    Outcome,
    RateLimit,
    Recall,
    Receipt,
    RequestEvent,
    RequestRecord,
    Said,
    SessionRecord,
    Stopped,
    StoreError,
    StoreHealth,
    TurnEnd,
    TurnResult,
    Withdrawn,
)
from parley.storage.items import ResponseItems
from parley.storage.people import Arrival
from parley.storage.sqlite import (
    adoption,
    clock,
    commands,
    lanes,
    notes,
    outbox,
    requests,
    rows,
    search,
    sessions,
)
from parley.storage.sqlite.arrivals import accept
from parley.storage.sqlite.conversation_store import SqliteConversations
from parley.storage.sqlite.engine import Engine
from parley.storage.sqlite.hands import SqliteHands
from parley.storage.sqlite.items import SqliteItems
from parley.storage.sqlite.memory import SqliteMemory
from parley.storage.sqlite.migrate import open_migrated
from parley.storage.sqlite.people import SqlitePeople
from parley.storage.sqlite.queries import SQL

__all__ = ["SqliteStore"]

_PATIENCE = 1.0


class SqliteStore(SqliteHands, SqlitePeople, SqliteMemory, SqliteItems, SqliteConversations):
    """One profile's rows in one file. Make it with `open`."""

    def __init__(self, engine: Engine, *, rate_limit: RateLimit | None = None) -> None:
        self._engine = engine
        self._rate_limit = rate_limit
        self._trying: asyncio.Future[Cursor] | None = None
        self.on_notice: Callable[[str], None] | None = None
        """Told of a platform when a claim left a notice in its outbox."""

    @classmethod
    def open(cls, file: Path, *, rate_limit: RateLimit | None = None) -> SqliteStore:
        """Open the file, made or migrated as needed."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(f"{file.parent} cannot be made: {error.strerror}.") from error
        return cls(Engine(file, open_migrated(file)), rate_limit=rate_limit)

    # ── in ──

    async def submit(
        self,
        lane: str,
        dedupe: str,
        message: InboundMessage,
        *,
        kind: InboxKind = "message",
        user: str | None = None,
        not_before: float | None = None,
        fresh_before: float | None = None,
        notice: Callable[[SessionRecord], Draft] | None = None,
    ) -> Receipt:
        now, limit = time.time(), self._rate_limit
        arrival = Arrival(lane, dedupe, message, kind, user, fresh_before, notice)
        return await self._engine.write(
            lambda db: accept(db, arrival, limit, not_before=not_before, now=now)
        )

    async def submit_all(
        self, arrivals: Sequence[Arrival], marks: Mapping[str, str | None]
    ) -> list[Receipt]:
        now, limit = time.time(), self._rate_limit

        def operation(db: Connection) -> list[Receipt]:
            receipts = [accept(db, arrival, limit, now=now) for arrival in arrivals]
            notes.put_marks(db, marks)
            return receipts

        return await self._engine.write(operation)

    async def allow(self, user: str, cost: float = 1.0) -> float | None:
        limit = self._rate_limit
        if limit is None:
            return None
        return await self._engine.write(
            lambda db: clock.allow(db, user, cost, limit, now=time.time())
        )

    # ── lanes ──

    async def claim(self, owner: str, limit: int, platforms: Sequence[str]) -> list[Claim]:
        told: set[str] = set()
        claims = await self._engine.write(
            lambda db: lanes.claim(db, owner, limit, platforms, told=told, now=time.time())
        )
        self._tell(told)
        return claims

    async def recover(self, owner: str) -> int:
        return await self._engine.write(lambda db: lanes.recover(db, owner, now=time.time()))

    async def check(self, claim: Claim) -> None:
        await self._engine.read(lambda db: lanes.check(db, claim))

    async def peek(self, claim: Claim) -> int:
        return await self._engine.read(lambda db: lanes.peek(db, claim, now=time.time()))

    async def behind(self, claim: Claim) -> tuple[InboxMessage, ...]:
        return await self._engine.read(lambda db: lanes.behind(db, claim, now=time.time()))

    async def absorb(self, claim: Claim) -> tuple[InboxMessage, ...]:
        told: set[str] = set()
        absorbed = await self._engine.write(
            lambda db: lanes.absorb(db, claim, told=told, now=time.time())
        )
        self._tell(told)
        return absorbed

    async def step(
        self, claim: Claim, messages: Sequence[ChatMessage], usage: Usage | None = None
    ) -> None:
        await self._engine.write(lambda db: lanes.step(db, claim, messages, usage, now=time.time()))

    async def commit(self, claim: Claim, end: TurnEnd) -> Committed:
        return await self._engine.write(lambda db: lanes.commit(db, claim, end, now=time.time()))

    async def release(self, claim: Claim) -> None:
        await self._engine.write(lambda db: lanes.release(db, claim, now=time.time()))

    async def stop(
        self,
        lane: str,
        *,
        drop_queued: bool = False,
        said: Said | None = None,
        turn: int | None = None,
    ) -> Stopped:
        return await self._engine.write(
            lambda db: lanes.stop(
                db, lane, drop_queued=drop_queued, said=said, turn=turn, now=time.time()
            )
        )

    # ── commands ──

    async def pending_commands(self) -> list[tuple[str, InboxMessage]]:
        def operation(db: Connection) -> list[tuple[str, InboxMessage]]:
            found = db.execute(SQL["inbox_commands"]).fetchall()
            return [(row["lane"], rows.inbox_message(row)) for row in found]

        return await self._engine.glance(operation)

    async def answer(
        self,
        lane: str,
        inbox_id: int,
        effect: Effect,
        reply: Callable[[Outcome], Draft],
        *,
        owner: str | None = None,
    ) -> list[Delivery] | None:
        return await self._engine.write(
            lambda db: commands.answer(
                db, lane, inbox_id, effect, reply, owner=owner, now=time.time()
            )
        )

    # ── transcripts and sessions ──

    async def session_of(self, lane: str) -> SessionRecord | None:
        return await self._engine.read(lambda db: sessions.current(db, lane))

    async def transcript(self, session: str, *, whole: bool = False) -> list[Entry]:
        return await self._engine.read(lambda db: sessions.transcript(db, session, whole=whole))

    async def recall(
        self, session: str, *, revision: int = -1, since: int = 0, places: Sequence[str] = ()
    ) -> Recall:
        return await self._engine.read(
            lambda db: sessions.recall(db, session, revision=revision, since=since, places=places)
        )

    async def times_undone(self, session: str) -> int:
        values = {"session": session}
        return await self._engine.read(
            lambda db: int(db.execute(SQL["turns_undone"], values).fetchone()["undone"])
        )

    async def move_window(self, session: str, keep_from: int, *, outside: str = "") -> None:
        values = {"keep_from": keep_from, "outside": rows.storable(outside)}
        await self._run("session_window", session=session, **values)

    async def sessions(
        self, *, lane: str | None = None, limit: int = 50, before: float | None = None
    ) -> list[SessionRecord]:
        return await self._engine.read(
            lambda db: sessions.listing(db, lane=lane, limit=limit, before=before)
        )

    async def sessions_under(
        self, lanes: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> list[SessionRecord]:
        return await self._engine.read(
            lambda db: sessions.under(db, lanes, limit=limit, after=after)
        )

    async def find_sessions(self, prefix: str, *, lane: str | None = None) -> list[SessionRecord]:
        return await self._engine.read(lambda db: sessions.by_prefix(db, prefix, lane=lane))

    async def delete_session(self, session: str, *, requests: bool = True) -> bool:
        def operation(db: Connection) -> tuple[bool, bool]:
            held = search.holds(db, session)
            return sessions.delete(db, session, requests=requests, now=time.time()), held

        deleted, held = await self._engine.write(operation)
        if deleted and held:
            await self._purge_words()
        return deleted

    # ── requests of programs ──

    async def open_request(
        self, record: RequestRecord, items: ResponseItems | None = None
    ) -> tuple[RequestRecord, bool]:
        return await self._engine.write(
            lambda db: requests.open_one(db, record, items, now=time.time())
        )

    async def request(self, id: str) -> RequestRecord | None:
        return await self._engine.read(lambda db: requests.get(db, id, now=time.time()))

    async def mark_request(self, id: str, state: Literal["queued", "running", "stopping"]) -> bool:
        return await self._run("request_mark", id=id, state=state) > 0

    async def finish_request(
        self,
        id: str,
        state: Literal["done", "failed", "stopped"],
        result: Mapping[str, Any] | None,
        events: Sequence[tuple[str, Mapping[str, Any]]] = (),
        items: ResponseItems | None = None,
    ) -> list[RequestEvent] | None:
        return await self._engine.write(
            lambda db: requests.finish(db, id, state, result, events, items=items, now=time.time())
        )

    async def delete_request(self, id: str) -> bool:
        return await self._engine.write(lambda db: requests.remove(db, id, now=time.time()))

    async def add_request_events(
        self, id: str, events: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[RequestEvent]:
        return await self._engine.write(
            lambda db: requests.add_events(db, id, events, now=time.time())
        )

    async def request_events(
        self, id: str, *, after: int = 0, limit: int = 500
    ) -> list[RequestEvent]:
        return await self._engine.read(
            lambda db: requests.events(db, id, after=after, limit=limit, now=time.time())
        )

    async def last_request_event(self, id: str) -> int:
        return await self._engine.read(lambda db: requests.last_event(db, id))

    async def open_requests(self) -> list[RequestRecord]:
        return await self._engine.glance(requests.under_way)

    async def prune_requests(self, now: float) -> int:
        return await self._engine.write(lambda db: requests.prune(db, now=now))

    async def turn_result(self, dedupe: str) -> TurnResult | None:
        return await self._engine.read(lambda db: requests.turn_result(db, dedupe))

    async def withdraw(self, lane: str, dedupe: str, *, said: Said | None = None) -> Withdrawn:
        return await self._engine.write(
            lambda db: requests.withdraw(db, lane, dedupe, said=said, now=time.time())
        )

    async def drop_unwaited(self) -> int:
        return await self._engine.write(lambda db: requests.drop_unwaited(db, now=time.time()))

    # ── out ──

    async def resume_sends(self, platform: str, owner: str, *, repeats: bool) -> None:
        await self._engine.write(
            lambda db: outbox.resume(db, platform, owner, repeats=repeats, now=time.time())
        )

    async def lease_deliveries(self, platform: str, owner: str, limit: int) -> list[Delivery]:
        return await self._engine.write(
            lambda db: outbox.lease(db, platform, owner, limit, now=time.time())
        )

    async def next_delivery_at(self, platform: str) -> float | None:
        def operation(db: Connection) -> float | None:
            found = db.execute(SQL["outbox_next_at"], {"platform": platform}).fetchone()
            return found["next_at"] if found is not None else None

        return await self._engine.glance(operation)

    async def delivered(self, delivery: int, platform_id: str | None = None) -> bool:
        return await self._engine.write(lambda db: outbox.confirm(db, delivery, platform_id))

    async def retry_delivery(self, delivery: int, after: float | None, why: str) -> None:
        next_at = None if after is None else time.time() + after
        await self._run("outbox_retry", id=delivery, next_at=next_at, why=rows.storable(why))

    async def abandon_delivery(
        self, delivery: int, state: Literal["unsure", "dead"], why: str
    ) -> None:
        await self._run("outbox_abandon", id=delivery, state=state, why=rows.storable(why))

    async def unpark(self, lane: str) -> int:
        return await self._run("outbox_unpark", lane=lane, now=time.time())

    # ── time ──

    async def tick(self) -> float | None:
        return await self._engine.write(lambda db: clock.tick(db, now=time.time()))

    # ── itself ──

    async def adopt(self, namespace: str) -> int:
        return await self._engine.write(lambda db: adoption.adopt(db, namespace, now=time.time()))

    async def health(self) -> StoreHealth:
        if self._engine.fault is not None:
            await self._try_again()

        def operation(db: Connection) -> StoreHealth:
            counts = db.execute(SQL["counts"]).fetchone()
            return StoreHealth(
                queued=counts["queued"],
                running=counts["running"],
                undelivered=counts["undelivered"],
                unsure=outbox.doubtful(db, "unsure"),
                dead=outbox.doubtful(db, "dead"),
                fault=self._engine.fault,
            )

        try:
            return await self._engine.glance(operation)
        except StoreError as error:
            return StoreHealth(0, 0, 0, fault=self._engine.fault or str(error))

    async def _try_again(self) -> None:
        """A disk that was mended is noticed without waiting for a message."""
        if self._trying is None or self._trying.done():
            now = time.time()
            self._trying = self._engine.write(lambda db: db.execute(SQL["probe"], {"at": now}))
            self._trying.add_done_callback(_heard)
        await asyncio.wait([self._trying], timeout=_PATIENCE)

    async def close(self) -> None:
        await self._engine.close()

    def _tell(self, platforms: set[str]) -> None:
        if self.on_notice is not None:
            for platform in platforms:
                self.on_notice(platform)

    async def _run(self, query: str, **values: object) -> int:
        """One named statement; how many rows it changed."""
        return await self._engine.write(lambda db: db.execute(SQL[query], values).rowcount)


def _heard(tried: asyncio.Future[Cursor]) -> None:
    """What became of it is in the engine's `fault`."""
    if not tried.cancelled():
        tried.exception()
