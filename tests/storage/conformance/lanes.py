"""One turn at a time per lane, in order; lanes side by side, fairly."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from parley.protocol import ChatMessage, Usage
from parley.storage.contract import Claim, Store, TurnEnd
from tests.builders import PLATFORM, a_draft, a_message, an_end, say
from tests.storage.conformance.base import (
    OWNER,
    claim_one,
    current,
    spoken,
    waiting_replies,
    words,
)


class LanePromises:
    async def test_messages_of_a_lane_are_answered_first_in_first_out(self, store: Store) -> None:
        for number in range(5):
            await say(store, str(number))
        answered = []
        for _ in range(5):
            claim = await claim_one(store)
            answered.append(claim.messages[0].message.text)
            await store.commit(claim, TurnEnd("done"))
        assert answered == ["0", "1", "2", "3", "4"]
        assert await store.claim(OWNER, 1, [PLATFORM]) == []

    async def test_a_lane_runs_one_turn_at_a_time(self, store: Store) -> None:
        await say(store, "one")
        await say(store, "two")
        first = await claim_one(store)
        assert await store.claim(OWNER, 10, [PLATFORM]) == []
        assert await store.claim("owner-2", 10, [PLATFORM]) == []
        await say(store, "three")
        assert await store.claim(OWNER, 10, [PLATFORM]) == []
        await store.commit(first, TurnEnd("done"))
        assert len(await store.claim(OWNER, 10, [PLATFORM])) == 1

    async def test_a_claim_takes_as_many_lanes_as_asked_for(self, store: Store) -> None:
        for number in range(5):
            await say(store, "hi", chat=f"c{number}")
        assert [c.lane for c in await store.claim(OWNER, 3, [PLATFORM])] == ["c0", "c1", "c2"]
        assert [c.lane for c in await store.claim(OWNER, 3, [PLATFORM])] == ["c3", "c4"]

    async def test_a_busy_lane_does_not_starve_the_others(self, store: Store) -> None:
        for number in range(100):
            await say(store, str(number), chat="busy")
        await say(store, "hi", chat="quiet")
        order: list[str] = []
        for _ in range(4):
            claim = await claim_one(store)
            order.append(claim.lane)
            if claim.lane == "busy" and len(order) == 1:
                await say(store, "hi", chat="late")
            await store.commit(claim, TurnEnd("done"))
        assert order == ["busy", "quiet", "late", "busy"]

    async def test_only_lanes_of_the_platforms_asked_for_are_claimed(self, store: Store) -> None:
        await say(store, "hi", chat="elsewhere", platform="other")
        await say(store, "hi", chat="here")
        assert [claim.lane for claim in await store.claim(OWNER, 10, [PLATFORM])] == ["here"]
        assert await store.claim(OWNER, 10, []) == []
        assert [claim.lane for claim in await store.claim(OWNER, 10, ["other"])] == ["elsewhere"]

    async def test_a_claim_knows_its_source_and_its_session(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        assert claim.source == a_message("hello").source
        assert claim.session == (await current(store)).id
        assert (claim.attempt, claim.owner) == (1, OWNER)

    async def test_the_transcript_is_in_the_order_it_happened(self, store: Store) -> None:
        await say(store, "question")
        claim = await claim_one(store)
        await store.step(claim, [spoken("step one")])
        await say(store, "and also")
        await say(store, "and this")
        assert await store.peek(claim) == 2
        absorbed = await store.absorb(claim)
        assert [taken.message.text for taken in absorbed] == ["and also", "and this"]
        assert await store.peek(claim) == 0
        assert await store.absorb(claim) == ()
        await store.step(claim, [spoken("step two")])
        await store.commit(claim, an_end("answer"))
        assert await words(store) == [
            "question",
            "step one",
            "and also",
            "and this",
            "step two",
            "answer",
        ]

    async def test_absorbed_messages_are_answered_with_the_turn(self, store: Store) -> None:
        await say(store, "one")
        claim = await claim_one(store)
        await say(store, "two")
        await store.absorb(claim)
        await store.commit(claim, TurnEnd("done"))
        assert await store.claim(OWNER, 1, [PLATFORM]) == []
        health = await store.health()
        assert (health.queued, health.running) == (0, 0)

    async def test_what_would_be_absorbed_is_seen_and_left_where_it_is(self, store: Store) -> None:
        await say(store, "one")
        claim = await claim_one(store)
        for text in ("two", "three", "by another account", "four"):
            message = a_message(text)
            if text == "by another account":
                message = replace(message, source=replace(message.source, account="other"))
            await store.submit("c1", text, message)
        await store.submit("c1", "cmd", a_message("/stop"), kind="command")
        behind = await store.behind(claim)
        assert [taken.message.text for taken in behind] == ["two", "three"]
        assert await store.peek(claim) == 4
        assert await store.absorb(claim) == behind
        assert await store.behind(claim) == ()

    async def test_a_command_is_no_turn_and_is_not_absorbed(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        await store.submit("c1", "cmd", a_message("/stop"), kind="command")
        assert await store.peek(claim) == 0
        assert await store.absorb(claim) == ()
        await store.commit(claim, TurnEnd("done"))
        assert await store.claim(OWNER, 1, [PLATFORM]) == []

    async def test_a_commit_is_one_transaction(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        unstorable = a_draft("two", chat="\0")
        object.__setattr__(unstorable, "source", None)
        end = TurnEnd("done", (spoken("one"),), (a_draft("one"), unstorable), Usage("p", "m", 7))
        failed = False
        try:
            await store.commit(claim, end)
        except AttributeError:
            failed = True
        assert failed
        await store.check(claim)
        assert await words(store) == ["hello"]
        assert await waiting_replies(store) == []
        assert (await current(store)).input_tokens == 0
        await store.commit(claim, an_end("one"))
        assert await words(store) == ["hello", "one"]
        assert await waiting_replies(store) == ["one"]

    async def test_a_failing_write_does_not_harm_those_beside_it(self, store: Store) -> None:
        broken = a_message("broken")
        object.__setattr__(broken, "attachments", object())
        results = await asyncio.gather(
            say(store, "before", chat="a"),
            store.submit("b", "broken", broken),
            say(store, "after", chat="c"),
            return_exceptions=True,
        )
        assert isinstance(results[1], Exception)
        assert {claim.lane for claim in await store.claim(OWNER, 9, [PLATFORM])} == {"a", "c"}

    async def test_what_a_turn_cost_is_counted_once(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        await store.step(claim, [spoken("a")], Usage("p", "m", 10, 2, 1))
        await store.commit(claim, TurnEnd("done", usage=Usage("p", "m", 20, 3, 4)))
        record = await current(store)
        assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (30, 5, 5)
        assert record.turns == 1

    async def test_a_failed_turn_is_over_too(self, store: Store) -> None:
        await say(store, "hello")
        await say(store, "next")
        end = TurnEnd("failed", (ChatMessage("assistant", "sorry", note="failed"),))
        await store.commit(await claim_one(store), end)
        assert (await claim_one(store)).messages[0].message.text == "next"

    async def test_a_planned_message_waits_for_its_time(self, store: Store) -> None:
        soon = time.time() + 0.15
        await store.submit("c1", "later", a_message("later"), not_before=soon)
        await say(store, "now")
        claim = await claim_one(store)
        assert claim.messages[0].message.text == "now"
        assert await store.peek(claim) == 0
        await store.commit(claim, TurnEnd("done"))
        assert await store.claim(OWNER, 1, [PLATFORM]) == []
        assert await store.tick() == soon
        claim = await self._claim_when_due(store, soon)
        assert claim.messages[0].message.text == "later"

    async def _claim_when_due(self, store: Store, due: float) -> Claim:
        """`tick` says when; before that time it makes nothing ready."""
        while (wait := due - time.time()) > 0:
            await asyncio.sleep(wait)
        assert await store.tick() is None
        return await claim_one(store)
