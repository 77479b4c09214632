"""Whoever sends is told when a claim left something to send."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from parley.protocol import Report
from parley.storage.sqlite import SqliteStore
from tests.builders import PLATFORM, a_message, say
from tests.storage.conformance.base import OWNER, claim_one, converse, current


async def test_a_notice_that_a_claim_left_is_told(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "parley.db")
    told: list[str] = []
    store.on_notice = told.append
    await converse(store, "hello", "hi")
    assert told == []
    session = (await current(store)).id
    late = replace(a_message("late"), report=Report("another", 0, "It ended."))
    await store.submit("c1", "one", late)
    assert await store.claim(OWNER, 9, [PLATFORM]) == []
    assert told == [PLATFORM]
    await say(store, "more")
    claim = await claim_one(store)
    await store.submit("c1", "two", late)
    due = replace(a_message("due"), report=Report(session, claim.generation, "It ended."))
    await store.submit("c1", "three", due)
    assert [taken.message.text for taken in await store.absorb(claim)] == ["due"]
    assert told == [PLATFORM, PLATFORM]
    assert len(await store.lease_deliveries(PLATFORM, OWNER, 9)) == 1
    await store.close()
