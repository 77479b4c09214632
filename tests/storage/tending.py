"""Short sentences over what a store remembers."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from parley.storage.contract import Store
from parley.storage.memory import Commit, Consolidation, Edit, Fact, Fold, NewFact, Tended
from tests.storage.conformance.base import converse, current

ALICE = "person:test:user-of-c1"
BOB = "person:test:user-of-c2"


async def tended(store: Store, chat: str = "c1") -> Tended:
    found = await store.tended((await current(store, chat)).id)
    assert found is not None
    return found


async def talk(store: Store, *texts: str, chat: str = "c1") -> Tended:
    """A person says these, one turn each; the session as it is then."""
    for text in texts:
        await converse(store, text, f"so: {text}", chat=chat)
    return await tended(store, chat)


async def source(store: Store, text: str, chat: str = "c1") -> int:
    """The entry in which somebody said so."""
    session = await current(store, chat)
    found = await store.transcript(session.id, whole=True)
    return next(entry.id for entry in found if entry.message.text == text)


def made(seen: Tended, *facts: NewFact, place: str = ALICE, **changed: Any) -> Consolidation:
    """What was learned from all that there is of a session."""
    return replace(Consolidation(seen.id, place, seen.seen, "learned", seen.last, facts), **changed)


def a_fold(seen: Tended, *facts: NewFact, keep_from: int, summary: str) -> Consolidation:
    return made(seen, *facts, kind="folded", fold=Fold(keep_from, summary))


async def learn(store: Store, *facts: NewFact, chat: str = "c1", place: str = ALICE) -> Commit:
    commit = await store.consolidate(made(await tended(store, chat), *facts, place=place))
    assert commit is not None
    return commit


async def add(store: Store, *texts: str | NewFact, place: str = ALICE, by: str = "owner") -> Commit:
    """Somebody asks for it to be remembered."""
    facts = tuple(NewFact(text) if isinstance(text, str) else text for text in texts)
    return await store.remember(place, Edit(adds=facts), by=by, origin="command")


async def texts(store: Store, place: str = ALICE) -> list[str]:
    return [fact.text for fact in await store.facts([place])]


async def fact(store: Store, text: str, place: str = ALICE) -> Fact:
    """The one fact with these words, whatever became of it."""
    ever = await store.facts([place], states=("current", "replaced", "removed"))
    [found] = [fact for fact in ever if fact.text == text]
    return found


def vacuumed(file: Path) -> bytes:
    """The bytes of the file without the pages that wait to be used again."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return file.read_bytes()
