"""Finding facts: by their words, and by their meaning where a model for that is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from parley.memory.embeddings import Embedder, EmbeddingError
from parley.storage.memory import Commit, Fact, MemoryStore

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

__all__ = ["Finder", "fuse"]

_FLOOR: Final = 0.2
"""Texts that have nothing to do with each other come this near by chance."""
_BEHIND_THE_BEST: Final = 0.5
"""Where something is meant clearly, what is half as near is not it."""
_RANK_CONSTANT: Final = 60
_AT_ONCE: Final = 200
_MOST_BEFORE_A_SEARCH: Final = 5_000
_KEPT: Final = 16
_KEPT_FACTS: Final = 32_000
"""A kilobyte each."""


@dataclass(frozen=True, slots=True)
class _Near:
    """The vectors of some places, as they were at these versions."""

    versions: tuple[int, ...]
    ids: NDArray[numpy.int64]
    table: NDArray[numpy.float32]


class Finder:
    """Finds facts of given places, and of no other. Without a model it goes by words alone.

    The factory is called once, in a thread, by the first search or `catch_up`.
    """

    def __init__(self, store: MemoryStore, embedder_factory: Callable[[], Embedder | None]) -> None:
        self._store = store
        self._factory: Callable[[], Embedder | None] | None = embedder_factory
        self._embedder: Embedder | None = None
        self._making = asyncio.Lock()
        self._near: dict[tuple[str, ...], _Near] = {}
        self._caught_up: list[Commit] | None = None

    async def __call__(
        self, query: str, places: Sequence[str], person: str | None = None, limit: int = 10
    ) -> list[Fact]:
        """Best first; with `person`, only facts from their words."""
        if not places or limit < 1 or not query.strip():
            return []
        by_words = await self._store.search_facts(query, places, person=person, limit=limit)
        by_meaning = await self._by_meaning(query, tuple(places), person, limit)
        return fuse((by_words, by_meaning), limit=limit) if by_meaning else by_words

    async def catch_up(self) -> int:
        """Make the vectors that are missing; how many were made, at most a few thousand."""
        embedder = await self._get_embedder()
        if embedder is None:
            return 0
        made = 0
        async with self._making:
            newest = await self._store.commits(limit=1)
            if newest == self._caught_up:  # nothing was remembered since
                return 0
            while made < _MOST_BEFORE_A_SEARCH:
                missing = await self._store.unembedded(embedder.name, limit=_AT_ONCE)
                if not missing:
                    self._caught_up = newest
                    break
                vectors = await self._embed(embedder, [text for _, text in missing])
                if vectors is None:
                    break
                found = {id: vector for (id, _), vector in zip(missing, vectors, strict=True)}
                await self._store.put_vectors(embedder.name, found)
                made += len(found)
        return made

    async def _get_embedder(self) -> Embedder | None:
        async with self._making:
            if self._factory is not None:
                factory, self._factory = self._factory, None
                self._embedder = await asyncio.to_thread(factory)
        return self._embedder

    async def _embed(self, embedder: Embedder, texts: Sequence[str]) -> list[bytes] | None:
        """None when the model cannot be used: it is not asked again."""
        try:
            return await asyncio.to_thread(embedder.embed, texts)
        except EmbeddingError:
            self._embedder = None
            return None

    async def _by_meaning(
        self, query: str, places: tuple[str, ...], person: str | None, limit: int
    ) -> list[Fact]:
        embedder = await self._get_embedder()
        if embedder is None:
            return []
        near = await self._vectors(embedder, places)
        if near is None or not len(near.ids):
            return []
        asked = await self._embed(embedder, [query])
        if asked is None:
            return []
        ids = await asyncio.to_thread(_nearest, near, asked[0])
        return await self._facts(ids, places, person, limit)

    async def _vectors(self, embedder: Embedder, places: tuple[str, ...]) -> _Near | None:
        """The versions are read first: what is remembered meanwhile has another one."""
        versions = await self._store.place_versions(places)
        kept = self._near.pop(places, None)
        if kept is None or kept.versions != versions:
            made = await self.catch_up()
            if self._embedder is None:
                return None
            vectors = await self._store.vectors(embedder.name, places)
            kept = await asyncio.to_thread(_near, versions, vectors)
            if made >= _MOST_BEFORE_A_SEARCH:
                return kept
        self._near[places] = kept
        self._let_go()
        return kept

    def _let_go(self) -> None:
        """Of those that were not asked for the longest, until the rest is within bounds."""
        facts = sum(len(near.ids) for near in self._near.values())
        while self._near and (len(self._near) > _KEPT or facts > _KEPT_FACTS):
            facts -= len(self._near.pop(next(iter(self._near))).ids)

    async def _facts(
        self, ids: Iterable[int], places: tuple[str, ...], person: str | None, limit: int
    ) -> list[Fact]:
        """The first of them that may be found; a vector says nothing of who may see its fact."""
        theirs = None
        if person is not None:
            theirs = {fact.id for fact in await self._store.facts(places, person=person)}
        found: list[Fact] = []
        for id in ids:
            if len(found) == limit:
                break
            if theirs is not None and id not in theirs:
                continue
            fact = await self._store.fact(id)
            if fact is not None and fact.state == "current" and fact.place in places:
                found.append(fact)
        return found


def fuse(rankings: Iterable[Sequence[Fact]], *, limit: int) -> list[Fact]:
    """One ranking of several: what stands high in one, or in more than one, comes first."""
    scores: dict[int, float] = {}
    facts: dict[int, Fact] = {}
    for ranking in rankings:
        for rank, fact in enumerate(ranking, start=1):
            facts.setdefault(fact.id, fact)
            scores[fact.id] = scores.get(fact.id, 0.0) + 1 / (_RANK_CONSTANT + rank)
    return sorted(facts.values(), key=lambda fact: -scores[fact.id])[:limit]


def _near(versions: tuple[int, ...], vectors: Sequence[tuple[int, bytes]]) -> _Near:
    import numpy

    ids = numpy.array([id for id, _ in vectors], dtype=numpy.int64)
    table = numpy.frombuffer(b"".join(vector for _, vector in vectors), dtype="<f2")
    width = len(table) // max(1, len(ids))
    return _Near(versions, ids, table.reshape(len(ids), width).astype(numpy.float32))


def _nearest(near: _Near, asked: bytes) -> list[int]:
    """Ids of what is near enough, the nearest first."""
    import numpy

    likeness = near.table @ numpy.frombuffer(asked, dtype="<f2").astype(numpy.float32)
    floor = max(_FLOOR, _BEHIND_THE_BEST * float(likeness.max()))
    enough = numpy.flatnonzero(likeness >= floor)
    order = enough[numpy.argsort(-likeness[enough], kind="stable")]
    return [int(id) for id in near.ids[order]]
