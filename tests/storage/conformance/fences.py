"""Stale owners and stopped turns change nothing; what was under way is taken up again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from parley.storage.contract import Claim, LeaseLost, Said, Stopped, Store, TurnEnd
from tests.builders import PLATFORM, an_end, say
from tests.storage.conformance.base import (
    OWNER,
    OpenStore,
    claim_one,
    spoken,
    waiting_replies,
    words,
)

_FENCED: list[Callable[[Store, Claim], Awaitable[object]]] = [
    lambda store, claim: store.check(claim),
    lambda store, claim: store.step(claim, [spoken("stale step")]),
    lambda store, claim: store.absorb(claim),
    lambda store, claim: store.release(claim),
    lambda store, claim: store.commit(claim, an_end("stale reply")),
]


class FencePromises:
    async def test_an_owner_that_was_given_up_changes_nothing(self, open_store: OpenStore) -> None:
        first, second = await open_store(), await open_store()
        await say(first, "hello")
        stale = await claim_one(first, owner="one")
        await say(first, "behind")
        assert await second.recover("two") == 1
        for call in _FENCED:
            with pytest.raises(LeaseLost):
                await call(first, stale)
        fresh = await claim_one(second, owner="two")
        for call in _FENCED:
            with pytest.raises(LeaseLost):
                await call(first, stale)
        assert await words(second) == ["hello"]
        assert await second.peek(fresh) == 1
        await second.commit(fresh, an_end("reply"))
        for call in _FENCED:
            with pytest.raises(LeaseLost):
                await call(first, stale)
        assert await words(second) == ["hello", "reply"]
        assert await waiting_replies(second) == ["reply"]

    async def test_a_turn_that_ended_cannot_end_again(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        await store.commit(claim, an_end("reply"))
        for call in _FENCED:
            with pytest.raises(LeaseLost):
                await call(store, claim)
        await say(store, "next")
        fresh = await claim_one(store)
        for call in _FENCED:
            with pytest.raises(LeaseLost):
                await call(store, claim)
        await store.check(fresh)

    async def test_a_recovered_turn_is_the_same_turn(self, open_store: OpenStore) -> None:
        first = await open_store()
        await say(first, "question")
        begun = await claim_one(first, owner="one")
        await first.step(begun, [spoken("step")])
        await say(first, "absorbed")
        await first.absorb(begun)
        await say(first, "behind")
        await first.close()
        second = await open_store()
        assert await second.recover("two") == 1
        resumed = await claim_one(second, owner="two")
        assert (resumed.turn, resumed.attempt) == (begun.turn, 2)
        assert resumed.session == begun.session
        assert resumed.source == begun.source
        assert [taken.message.text for taken in resumed.messages] == ["question", "absorbed"]
        assert await words(second) == ["question", "step", "absorbed"]
        assert await second.peek(resumed) == 1

    async def test_recovery_leaves_what_is_its_own(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        assert await store.recover(OWNER) == 0
        await store.check(claim)

    async def test_recovered_lanes_go_first(self, store: Store) -> None:
        for chat in ("a", "b"):
            await say(store, "hi", chat=chat)
        await store.claim("one", 2, [PLATFORM])
        await say(store, "hi", chat="newcomer")
        await store.recover("two")
        lanes = [claim.lane for claim in await store.claim("two", 9, [PLATFORM])]
        assert sorted(lanes[:2]) == ["a", "b"]

    async def test_a_released_turn_is_taken_up_again(self, store: Store) -> None:
        await say(store, "hello")
        await say(store, "behind")
        claim = await claim_one(store)
        await store.step(claim, [spoken("step")])
        await store.release(claim)
        again = await claim_one(store)
        assert (again.turn, again.attempt) == (claim.turn, 2)
        assert again.messages == claim.messages
        with pytest.raises(LeaseLost):
            await store.commit(claim, TurnEnd("done"))

    async def test_a_released_turn_goes_to_the_end_of_the_line(self, store: Store) -> None:
        await say(store, "hi", chat="a")
        claim = await claim_one(store)
        await say(store, "hi", chat="b")
        await store.release(claim)
        assert (await claim_one(store)).lane == "b"

    async def test_words_are_kept_for_the_turn_that_said_them_only(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        await store.stop("c1", said=Said(claim.turn - 1, "of an earlier turn"))
        texts = [entry.message.text for entry in await store.transcript(claim.session)]
        assert texts == ["hello"]

    async def test_a_stopped_turn_says_nothing_more(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        stopped = await store.stop("c1", said=Said(claim.turn, "I was about to"))
        assert stopped.turn == claim.turn
        assert stopped.generation == claim.generation + 1
        for call in _FENCED:
            with pytest.raises(LeaseLost):
                await call(store, claim)
        assert await waiting_replies(store) == []
        entries = await store.transcript(claim.session)
        assert [(e.message.text, e.message.note) for e in entries] == [
            ("hello", None),
            ("I was about to", "interrupted"),
        ]
        assert await store.claim(OWNER, 1, [PLATFORM]) == []

    async def test_a_stop_keeps_the_messages_that_wait(self, store: Store) -> None:
        await say(store, "one")
        await claim_one(store)
        await say(store, "two")
        assert (await store.stop("c1")).dropped == 0
        assert (await claim_one(store)).messages[0].message.text == "two"
        assert await words(store) == ["one", "two"]

    async def test_a_stop_may_drop_the_messages_that_wait(self, store: Store) -> None:
        await say(store, "one")
        await claim_one(store)
        await say(store, "two")
        await say(store, "three")
        await say(store, "elsewhere", chat="c2")
        assert (await store.stop("c1", drop_queued=True)).dropped == 2
        assert (await claim_one(store)).lane == "c2"
        assert await store.claim(OWNER, 9, [PLATFORM]) == []
        assert (await say(store, "two")).state == "duplicate"

    async def test_a_stop_meant_for_one_turn_leaves_a_fresher_one_alone(self, store: Store) -> None:
        await say(store, "one")
        old = await claim_one(store)
        await store.commit(old, TurnEnd("done"))
        await say(store, "two")
        fresh = await claim_one(store)
        await say(store, "three")
        assert await store.stop("c1", turn=old.turn, drop_queued=True) == Stopped(
            None, 0, fresh.generation
        )
        await store.check(fresh)
        assert await store.peek(fresh) == 1
        assert (await store.stop("c1", turn=fresh.turn)).turn == fresh.turn

    async def test_a_stop_of_a_quiet_lane_finds_nothing(self, store: Store) -> None:
        assert (await store.stop("nobody")).turn is None
        await say(store, "hello")
        assert (await store.stop("c1")).turn is None
        assert (await claim_one(store)).messages[0].message.text == "hello"

    async def test_a_stop_reaches_a_turn_that_waits_to_be_resumed(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store, owner="one")
        await store.recover("two")
        assert (await store.stop("c1")).turn == claim.turn
        assert await store.claim("two", 1, [PLATFORM]) == []

    async def test_a_stop_of_a_waiting_lane_does_not_cost_it_its_place(self, store: Store) -> None:
        await say(store, "hi", chat="a")
        await say(store, "hi", chat="b")
        await store.stop("a")
        assert (await claim_one(store)).lane == "a"
