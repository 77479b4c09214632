"""What is said outside of a turn goes out once, and stands in the transcript in its place."""

from __future__ import annotations

import asyncio

import pytest

from parley.storage.contract import Store, StoreError, TurnEnd, UndoTurn
from tests.builders import PLATFORM, a_draft, an_end, event_name, say
from tests.storage.conformance.base import (
    OWNER,
    OpenStore,
    claim_one,
    command,
    converse,
    current,
    spoken,
    waiting_replies,
    words,
)


class PostPromises:
    async def test_a_message_is_posted_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        await converse(store, "hello", "hi")
        draft = a_draft("by the way")
        posted = await asyncio.gather(
            *(store.post("c1", draft, said=spoken("by the way")) for _ in range(3))
        )
        assert posted == [[], [], []]
        assert await waiting_replies(store) == ["by the way"]
        await store.close()
        again = await open_store()
        assert await again.post("c1", draft, said=spoken("by the way"), owner=OWNER) == []
        assert await waiting_replies(again) == []
        assert await words(again) == ["hello", "hi", "by the way"]

    async def test_what_is_only_sent_is_not_in_the_transcript(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await store.post("c1", a_draft("on the side"))
        assert await waiting_replies(store) == ["on the side"]
        assert await words(store) == ["hello", "hi"]

    async def test_a_posted_message_may_be_handed_over(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        [handed] = await store.post("c1", a_draft("now", handover=True), owner=OWNER)
        assert (handed.text, handed.state, handed.lane) == ("now", "sending", "c1")
        assert handed.session == (await current(store)).id
        assert await store.lease_deliveries(PLATFORM, OWNER, 9) == []

    async def test_nothing_is_posted_where_nobody_spoke(self, store: Store) -> None:
        with pytest.raises(StoreError):
            await store.post("c1", a_draft("hello?"), said=spoken("hello?"))
        assert await waiting_replies(store) == []

    async def test_a_post_is_no_turn_that_anyone_counts_or_takes_back(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await store.post("c1", a_draft("by the way"), said=spoken("by the way"))
        assert (await current(store)).turns == 1
        outcome = await command(store, UndoTurn(), text="/undo")
        assert outcome.undone == ("hello",)
        assert await words(store) == ["by the way"]

    async def test_a_post_does_not_end_the_turn_that_runs_there(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await say(store, "more")
        claim = await claim_one(store)
        await store.step(claim, [spoken("a step")])
        await store.post("c1", a_draft("meanwhile"), said=spoken("meanwhile"))
        await store.check(claim)
        await store.commit(claim, an_end("done"))
        assert await words(store) == ["hello", "hi", "more", "a step", "meanwhile", "done"]
        result = await store.turn_result(event_name("more"))
        assert result is not None
        assert [message.text for message in result.messages] == ["more", "a step", "done"]

    async def test_a_turn_that_is_resumed_knows_its_own_entries(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await say(store, "more")
        claim = await claim_one(store)
        session = claim.session
        before = await store.recall(session)
        last = max(entry.id for entry in before.entries if entry.turn != claim.turn)
        await store.post("c1", a_draft("meanwhile"), said=spoken("meanwhile"))
        await store.step(claim, [spoken("a step")])
        await store.recover("another")
        again = await claim_one(store, owner="another")
        since = await store.recall(session, revision=before.revision, since=last)
        assert not since.whole
        mine = [entry.message.text for entry in since.entries if entry.turn == again.turn]
        others = [entry.message.text for entry in since.entries if entry.turn != again.turn]
        assert (mine, others) == (["more", "a step"], ["meanwhile"])
        await store.commit(again, TurnEnd("done"))
