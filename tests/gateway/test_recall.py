"""What was said, remembered: the same as what is stored, and no more of it than is allowed."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.gateway.recall import Histories
from parley.protocol import ChatMessage, ToolCall
from parley.storage.contract import Claim, UndoTurn
from parley.storage.sqlite import SqliteStore
from tests.builders import PLATFORM, a_draft, a_message, an_end, say

OWNER = "owner-1"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "parley.db")
    yield store
    await store.close()


async def _turn(store: SqliteStore, histories: Histories, text: str, chat: str = "c1") -> list[str]:
    """Ask and answer; returns what the turn had before it."""
    await say(store, text, chat=chat)
    [claim] = await store.claim(OWNER, 1, [PLATFORM])
    before = await _words(histories, claim)
    await store.commit(claim, an_end(f"re: {text}", chat=chat))
    return before


async def _words(histories: Histories, claim: Claim) -> list[str]:
    remembered = await histories.of(claim)
    assert [entry.message.role for entry in remembered.progress] == ["user"]
    return [entry.message.text for entry in remembered.history]


async def test_a_turn_has_all_that_was_said_before_it(store: SqliteStore) -> None:
    histories = Histories(store)
    assert await _turn(store, histories, "one") == []
    assert await _turn(store, histories, "two") == ["one", "re: one"]
    assert await _turn(store, histories, "three") == ["one", "re: one", "two", "re: two"]


async def test_what_was_undone_is_not_remembered(store: SqliteStore) -> None:
    histories = Histories(store)
    await _turn(store, histories, "one")
    await _turn(store, histories, "two")
    await _turn(store, histories, "three")
    receipt = await store.submit("c1", "undo", a_message("/undo"), kind="command")
    await store.answer("c1", receipt.inbox_id, UndoTurn(), lambda _: a_draft("undone"))
    assert await _turn(store, histories, "four") == ["one", "re: one", "two", "re: two"]


async def test_what_left_the_window_is_not_remembered(store: SqliteStore) -> None:
    histories = Histories(store)
    await _turn(store, histories, "one")
    await _turn(store, histories, "two")
    record = await store.session_of("c1")
    assert record is not None
    entries = await store.transcript(record.id)
    await store.move_window(record.id, entries[2].id)
    assert await _turn(store, histories, "three") == ["two", "re: two"]


async def test_memory_is_bounded_however_many_short_conversations_there_are(
    store: SqliteStore,
) -> None:
    histories = Histories(store, most_bytes=60_000)
    for number in range(50):
        await _turn(store, histories, "hi", chat=f"warm{number}")
    tracemalloc.start()
    try:
        for number in range(300):
            await _turn(store, histories, "hi", chat=f"chat{number}")
            await _turn(store, histories, "again", chat=f"chat{number}")
        held = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(True, "*/parley/*"), tracemalloc.Filter(True, "*/json/*")]
        )
    finally:
        tracemalloc.stop()
    assert sum(line.size for line in held.statistics("filename")) < 200_000
    words = ["hi", "re: hi", "again", "re: again"]
    assert await _turn(store, histories, "and now", chat="chat0") == words


@pytest.mark.parametrize("resumed", [False, True])
async def test_what_is_posted_while_a_turn_runs_comes_behind_it(
    store: SqliteStore, resumed: bool
) -> None:
    histories = Histories(store)
    await _turn(store, histories, "one")
    await say(store, "two")
    [claim] = await store.claim("owner", 10, [PLATFORM])
    await histories.of(claim)
    posted = ChatMessage("assistant", "posted")
    await store.post("c1", a_draft("posted"), said=posted)
    call = ToolCall("t1", "now", {})
    await store.step(claim, [ChatMessage("assistant", "", tool_calls=(call,))])
    if resumed:
        await store.recover("another")
        [claim] = await store.claim("another", 10, [PLATFORM])
        found = await histories.of(claim)
        assert found.progress[0].message.text == "two"
    await store.step(claim, [ChatMessage("tool", "noon", tool_call_id="t1")])
    await store.commit(claim, an_end("answer"))
    await say(store, "three")
    [last] = await store.claim(claim.owner, 10, [PLATFORM])
    words = await _words(histories, last)
    assert words == ["one", "re: one", "two", "", "noon", "answer", "posted"]
