"""Whatever comes between: each fact is learned once, and offsets only go forward."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.storage.contract import UndoTurn
from parley.storage.memory import Consolidation, NewFact, Tended
from parley.storage.sqlite import SqliteStore
from tests.storage.conformance.base import command
from tests.storage.tending import a_fold, made, talk, tended, texts

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "learn", "fold", "late", "undo turn", "undo", "cut"]),
        st.integers(1, 3),
    ),
    min_size=3,
    max_size=12,
)
_Steps: TypeAlias = list[tuple[str, int]]
_NUMBERS = count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    """One store for all examples, each of them a conversation of its own."""
    store = SqliteStore.open(tmp_path_factory.mktemp("offsets") / "parley.db")
    yield store
    asyncio.run(store.close())


@settings(max_examples=40, deadline=None)
@given(steps=_STEPS)
def test_each_fact_is_learned_once_whatever_comes_between(
    shared: SqliteStore, steps: _Steps
) -> None:
    """Every message holds one fact. What counts and was not taken back is known in the end."""
    asyncio.run(_Story(shared, f"chat-{next(_NUMBERS)}").told(steps))


class _Story:
    def __init__(self, store: SqliteStore, chat: str) -> None:
        self._store = store
        self._chat = chat
        self._place = f"person:test:{chat}"
        self._taken_back: set[str] = set()

    async def told(self, steps: _Steps) -> None:
        stale = await talk(self._store, "word 0", chat=self._chat)
        for number, (step, many) in enumerate(steps, start=1):
            before = await self._seen()
            if step in ("learn", "fold"):
                assert await self._store.consolidate(await self._slice(before, many, step))
                stale = before
            elif step == "late":
                await self._try_late(stale, before)
            else:
                await self._do(step, number, before)
            self._check(step, before, await self._seen())
            known = await texts(self._store, self._place)
            assert len(known) == len(set(known))
        assert await self._store.consolidate(await self._slice(await self._seen(), 99, "learn"))
        last = await self._seen()
        assert await self._store.lines(last.id, after=last.seen.learned) == []
        said = {
            f"Fact of {entry.message.text}"
            for entry in await self._store.transcript(last.id, whole=True)
            if entry.message.role == "user"
        }
        known = await texts(self._store, self._place)
        assert said - self._taken_back <= set(known) <= said | self._taken_back

    async def _seen(self) -> Tended:
        return await tended(self._store, self._chat)

    async def _do(self, step: str, number: int, before: Tended) -> None:
        match step:
            case "say":
                await talk(self._store, f"word {number}", chat=self._chat)
            case "undo turn":
                outcome = await command(
                    *(self._store, UndoTurn()), text=f"/undo {number}", chat=self._chat
                )
                self._taken_back |= {f"Fact of {text}" for text in outcome.undone}
            case "cut":
                await self._store.move_window(before.id, before.last)
            case "undo":
                await self._undo(before)

    async def _undo(self, before: Tended) -> None:
        known = set(await texts(self._store, self._place))
        for commit in await self._store.commits(session=before.id):
            if commit.kind != "undid" and commit.undone_by is None:
                assert await self._store.undo_commit(commit.id, by="owner") is not None
                break
        self._taken_back |= known - set(await texts(self._store, self._place))

    async def _try_late(self, stale: Tended, now: Tended) -> None:
        """What was made of a session as it was before is refused."""
        if replace(stale.seen, tend_at=None) != replace(now.seen, tend_at=None):
            late = await self._slice(stale, 9, "learn")
            assert await self._store.consolidate(late) is None
            assert await self._seen() == now

    async def _slice(self, seen: Tended, many: int, step: str) -> Consolidation:
        """What a model makes of the next turns."""
        lines = await self._store.lines(seen.id, after=seen.seen.learned)
        turns = sorted({line.turn for line in lines})[:many]
        lines = [line for line in lines if line.turn in turns]
        found = [
            NewFact(f"Fact of {line.message.text}", sources=(line.id,))
            for line in lines
            if line.message.role == "user"
        ]
        upto = max((line.id for line in lines), default=seen.seen.learned)
        consolidation = made(seen, *found)
        if step == "fold":
            keep_from = max(seen.seen.folded, upto + 1)
            consolidation = a_fold(seen, *found, keep_from=keep_from, summary="Sum.")
        return replace(consolidation, learned=upto, place=self._place)

    def _check(self, step: str, before: Tended, since: Tended) -> None:
        assert since.seen.learned >= before.seen.learned
        assert since.window_start >= since.seen.folded
        if step != "undo":
            assert since.seen.folded >= before.seen.folded
            assert since.window_start >= before.window_start
