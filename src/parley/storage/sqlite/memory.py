"""What is remembered of people, in the store on SQLite: each call one operation, or a few."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from parley.protocol import Usage
from parley.storage.contract import StoreUnavailable
from parley.storage.memory import (
    Commit,
    CommitKind,
    Consolidation,
    Edit,
    Fact,
    FactState,
    Forgotten,
    Line,
    Origin,
    PlaceRecord,
    Seen,
    Tended,
    View,
)
from parley.storage.sqlite import (
    commits,
    fact_search,
    facts,
    forgetting,
    gone,
    memory_places,
    remembering,
    search,
    tending,
    undoing,
)
from parley.storage.sqlite.engine import Engine

__all__ = ["SqliteMemory"]


class SqliteMemory:
    """The part of `SqliteStore` that keeps facts, how they came to be, and who is to be tended."""

    _engine: Engine

    # ── tending ──

    async def untended(
        self,
        now: float,
        *,
        limit: int = 50,
        without: Collection[str] = (),
        behind: Tended | None = None,
    ) -> list[Tended]:
        return await self._engine.glance(
            lambda db: tending.in_line(db, now, limit=limit, without=without, behind=behind)
        )

    async def tended(self, session: str) -> Tended | None:
        return await self._engine.read(lambda db: tending.get(db, session))

    async def put_off(self, session: str, seen: Seen, until: float | None) -> bool:
        return await self._engine.write(lambda db: tending.put_off(db, session, seen, until))

    async def remember_at(self, session: str, turn: int, place: str) -> None:
        await self._engine.write(lambda db: tending.remember_at(db, session, turn, place))

    async def lines(
        self, session: str, *, after: int, upto: int | None = None, most_bytes: int = 4_000_000
    ) -> list[Line]:
        return await self._engine.search(
            lambda db: tending.lines(db, session, after=after, upto=upto, most_bytes=most_bytes)
        )

    async def consolidate(self, made: Consolidation) -> Commit | None:
        commit = await self._engine.write(lambda db: tending.consolidate(db, made, now=time.time()))
        if commit is not None and made.forgets:
            await self._purge_memory()
        return commit

    async def count_calls(self, session: str, usage: Sequence[Usage]) -> None:
        await self._engine.write(
            lambda db: tending.count_calls(db, session, usage, now=time.time())
        )

    # ── facts ──

    async def remember(
        self,
        place: str,
        edit: Edit,
        *,
        by: str,
        origin: Origin,
        kind: CommitKind = "told",
        note: str = "",
        dedupe: str | None = None,
        turn: int | None = None,
    ) -> Commit:
        return await self._engine.write(
            lambda db: remembering.remember(
                *(db, place, edit),
                by=by,
                origin=origin,
                kind=kind,
                note=note,
                dedupe=dedupe,
                turn=turn,
                now=time.time(),
            )
        )

    async def facts(
        self,
        places: Sequence[str],
        *,
        person: str | None = None,
        states: Sequence[FactState] = ("current",),
        limit: int | None = None,
    ) -> list[Fact]:
        return await self._engine.read(
            lambda db: facts.listing(db, places, person=person, states=states, limit=limit)
        )

    async def fact(self, id: int) -> Fact | None:
        return await self._engine.read(lambda db: facts.get(db, id))

    async def versions_of(self, fact: int) -> list[Fact]:
        return await self._engine.read(lambda db: facts.versions_of(db, fact))

    async def sources_of(self, fact: int) -> list[Line]:
        return await self._engine.read(lambda db: facts.lines_of(db, fact))

    async def search_facts(
        self, query: str, places: Sequence[str], *, person: str | None = None, limit: int = 10
    ) -> list[Fact]:
        if not await self._engine.search(fact_search.is_made):
            with suppress(StoreUnavailable):  # they are looked through instead
                await self._engine.write(fact_search.make)
        return await self._engine.search(
            lambda db: fact_search.find(db, query, places, person=person, limit=limit)
        )

    async def forget(
        self,
        facts: Sequence[int],
        *,
        by: str,
        words: bool = False,
        person: str | None = None,
        dedupe: str | None = None,
    ) -> Forgotten:
        forgotten = await self._engine.write(
            lambda db: forgetting.forget(
                *(db, facts), by=by, words=words, person=person, dedupe=dedupe, now=time.time()
            )
        )
        await self._purge_memory(said=forgotten.messages > 0)
        return forgotten

    async def _purge_memory(self, *, said: bool = False) -> None:
        """Words that were deleted leave the search indexes, and so the file, piece by piece."""
        for merge in (fact_search.merge, search.merge) if said else (fact_search.merge,):
            begin = True
            while await self._engine.write(partial(merge, begin=begin)):
                begin = False

    async def is_forgotten(self, place: str, text: str) -> bool:
        return await self._engine.read(lambda db: gone.is_gone(db, place, text, said_at=0.0))

    # ── commits ──

    async def commits(
        self,
        *,
        places: Sequence[str] | None = None,
        session: str | None = None,
        fact: int | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[Commit]:
        return await self._engine.read(
            lambda db: commits.listing(
                db, places=places, session=session, fact=fact, limit=limit, before=before
            )
        )

    async def commit_of(self, id: int) -> Commit | None:
        return await self._engine.read(lambda db: commits.get(db, id))

    async def undo_commit(self, id: int, *, by: str) -> Commit | None:
        return await self._engine.write(lambda db: undoing.undo(db, id, by=by, now=time.time()))

    # ── places and their views ──

    async def place_versions(self, places: Sequence[str]) -> tuple[int, ...]:
        return await self._engine.read(lambda db: memory_places.versions(db, places))

    async def places(self, *, unwritten: bool = False) -> list[PlaceRecord]:
        return await self._engine.glance(lambda db: memory_places.listing(db, unwritten=unwritten))

    async def view(self, place: str) -> View | None:
        return await self._engine.read(lambda db: memory_places.view(db, place))

    async def put_view(self, place: str, view: View) -> None:
        await self._engine.write(lambda db: memory_places.put_view(db, place, view))

    # ── vectors ──

    async def unembedded(self, model: str, *, limit: int = 200) -> list[tuple[int, str]]:
        return await self._engine.search(lambda db: facts.unembedded(db, model, limit=limit))

    async def put_vectors(self, model: str, vectors: Mapping[int, bytes]) -> None:
        await self._engine.write(lambda db: facts.put_vectors(db, model, vectors))

    async def vectors(self, model: str, places: Sequence[str]) -> list[tuple[int, bytes]]:
        return await self._engine.search(lambda db: facts.vectors(db, model, places))
