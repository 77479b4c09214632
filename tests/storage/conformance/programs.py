"""The message of a program has a turn of its own, and is given up when nobody waits for it."""

from __future__ import annotations

import pytest

from parley.protocol import ChatMessage, ToolCall, Usage
from parley.storage.contract import (
    Claim,
    LeaseLost,
    NewSession,
    RetryTurn,
    Said,
    Store,
    TurnEnd,
    TurnResult,
    UndoTurn,
    Withdrawn,
)
from tests.builders import PLATFORM, an_end, event_name, say
from tests.storage.conformance.base import (
    OWNER,
    OpenStore,
    a_program_message,
    ask,
    asked,
    claim_one,
    command,
    converse,
    current,
    spoken,
    words,
)

_EARLIER = (asked("before"), spoken("yes"))


def _texts(claim: Claim) -> list[str]:
    return [taken.message.text for taken in claim.messages]


class ProgramPromises:
    async def test_a_request_comes_with_its_message_until_the_turn_is_over(
        self, open_store: OpenStore
    ) -> None:
        first = await open_store()
        await ask(first, *_EARLIER, asked("now"), lasting=True)
        message = a_program_message(*_EARLIER, asked("now"), lasting=True)
        claim = await claim_one(first, owner="one")
        assert [taken.message for taken in claim.messages] == [message]
        await first.close()
        second = await open_store()
        await second.recover("two")
        resumed = await claim_one(second, owner="two")
        assert [taken.message for taken in resumed.messages] == [message]
        await second.release(resumed)
        again = await claim_one(second, owner="two")
        assert [taken.message for taken in again.messages] == [message]

    # ── what stands in the transcript ──

    async def test_all_that_is_asked_is_of_the_turn(self, store: Store) -> None:
        """Results of the program's own tools, and what it says beside them."""
        call = ChatMessage("assistant", "", (ToolCall("1", "look", {}),))
        results = (ChatMessage("tool", "seen", (), "1", "look"), asked("and?"))
        await ask(store, asked("look"), call, *results)
        claim = await claim_one(store)
        entries = await store.transcript(claim.session)
        mine = [entry.message for entry in entries if entry.turn == claim.turn]
        assert mine == [*results]
        assert [entry.message for entry in entries] == [asked("look"), call, *results]

    async def test_a_given_history_begins_an_empty_session(self, store: Store) -> None:
        await ask(store, *_EARLIER, asked("now"))
        claim = await claim_one(store)
        entries = await store.transcript(claim.session)
        assert [entry.message for entry in entries] == [*_EARLIER, asked("now")]
        assert {entry.turn for entry in entries[:2]}.isdisjoint({claim.turn})
        assert (await store.recall(claim.session)).entries == tuple(entries)
        await store.commit(claim, an_end("reply"))
        assert (await current(store)).turns == 1
        await ask(store, *_EARLIER, asked("now"), spoken("reply"), asked("then"))
        await store.commit(await claim_one(store), TurnEnd("done"))
        assert await words(store) == ["before", "yes", "now", "reply", "then"]
        assert (await current(store)).turns == 2
        assert (await store.health()).running == 0

    async def test_another_history_than_the_stored_one_begins_a_session(self, store: Store) -> None:
        before = await converse(store, "hello", "hi")
        await ask(store, *_EARLIER, asked("now"), lasting=True)
        claim = await claim_one(store, owner="one")
        assert (claim.session != before.session, claim.told) == (True, 2)
        await store.recover("two")
        resumed = await claim_one(store, owner="two")
        assert (resumed.session, resumed.told) == (claim.session, 2)
        await store.commit(resumed, an_end("reply"))
        assert await words(store) == ["before", "yes", "now", "reply"]
        old = await store.transcript(before.session)
        assert [entry.message.text for entry in old] == ["hello", "hi"]

    async def test_what_is_new_in_a_given_history_is_added(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        given = (asked("hello"), spoken("hi"), *_EARLIER, asked("now"))
        await ask(store, *given)
        assert (await claim_one(store)).told == 2
        assert await words(store) == [message.text for message in given]

    async def test_a_given_history_is_stored_once_whoever_resumes(self, store: Store) -> None:
        await ask(store, *_EARLIER, asked("now"), lasting=True)
        await claim_one(store, owner="one")
        await store.recover("two")
        resumed = await claim_one(store, owner="two")
        assert await words(store) == ["before", "yes", "now"]
        await store.commit(resumed, an_end("reply"))
        assert await store.claim("two", 9, [PLATFORM]) == []

    async def test_a_session_that_was_all_undone_is_empty(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await command(store, UndoTurn(), text="/undo")
        await ask(store, *_EARLIER, asked("now"))
        await claim_one(store)
        assert await words(store) == ["before", "yes", "now"]

    async def test_the_turn_is_undone_before_the_history_it_came_with(self, store: Store) -> None:
        await ask(store, *_EARLIER, asked("now"))
        await store.commit(await claim_one(store), an_end("reply"))
        outcome = await command(store, UndoTurn(), text="/undo")
        assert outcome.undone == ("now",)
        assert await words(store) == ["before", "yes"]

    @pytest.mark.parametrize("running", [True, False])
    async def test_a_request_is_retried_as_what_was_said(self, store: Store, running: bool) -> None:
        await ask(store, *_EARLIER, asked("now"))
        claim = await claim_one(store)
        if not running:
            await store.commit(claim, an_end("reply"))
        await command(store, RetryTurn(), text="/retry")
        again = await claim_one(store)
        assert _texts(again) == ["now"]
        assert again.messages[0].message.request is None
        assert await words(store) == ["before", "yes", "now"]

    # ── a turn of its own ──

    async def test_a_request_is_taken_into_no_other_turn(self, store: Store) -> None:
        await say(store, "one")
        claim = await claim_one(store)
        await say(store, "two")
        await ask(store, asked("program"))
        await say(store, "three")
        assert [taken.message.text for taken in await store.absorb(claim)] == ["two"]
        assert await store.absorb(claim) == ()
        await store.commit(claim, an_end("reply"))
        assert _texts(await claim_one(store)) == ["program"]

    @pytest.mark.parametrize("attempt", [1, 2])
    async def test_the_turn_of_a_request_takes_in_nothing(self, store: Store, attempt: int) -> None:
        await ask(store, asked("program"))
        claim = await claim_one(store)
        if attempt == 2:
            await store.release(claim)
            claim = await claim_one(store)
        await say(store, "one")
        assert await store.absorb(claim) == ()
        assert await words(store) == ["program"]
        await store.stop("c1")
        with pytest.raises(LeaseLost):
            await store.absorb(claim)

    # ── what became of it ──

    async def test_what_became_of_a_message_is_told_by_its_name(self, store: Store) -> None:
        name = event_name("now")
        assert await store.turn_result(name) is None
        await converse(store, "hello", "hi")
        await ask(store, asked("before"), spoken("yes"), asked("now"))
        assert await store.turn_result(name) == TurnResult("queued")
        claim = await claim_one(store)
        place = (claim.turn, claim.session)
        assert await store.turn_result(name) == TurnResult("running", *place, (asked("now"),))
        await store.step(claim, [spoken("step")], Usage("p1", "m1", 10, 5, 2))
        end = TurnEnd("done", (spoken("reply"),), usage=Usage("p2", "m2", 3, 2, 1))
        await store.commit(claim, end)
        await converse(store, "later", "yes")
        said = (asked("now"), spoken("step"), spoken("reply"))
        cost = Usage("p2", "m2", 13, 7, 3)
        assert await store.turn_result(name) == TurnResult("done", *place, said, cost)

    async def test_the_result_of_a_first_turn_is_without_its_history(self, store: Store) -> None:
        await ask(store, *_EARLIER, asked("now"))
        await store.commit(await claim_one(store), TurnEnd("failed"))
        result = await store.turn_result(event_name("now"))
        assert result is not None
        assert (result.state, result.messages) == ("failed", (asked("now"),))

    async def test_a_result_tells_of_stopping_dropping_and_forgetting(self, store: Store) -> None:
        await ask(store, asked("one"))
        await ask(store, asked("two"))
        claim = await claim_one(store)
        await store.stop("c1", drop_queued=True, said=Said(claim.turn, "half"))
        cut = ChatMessage("assistant", "half", note="interrupted")
        one, two = event_name("one"), event_name("two")
        assert await store.turn_result(one) == TurnResult(
            "stopped", claim.turn, claim.session, (asked("one"), cut)
        )
        assert await store.turn_result(two) == TurnResult("dropped")
        await command(store, UndoTurn(), text="/undo")
        assert await store.turn_result(one) == TurnResult("stopped", claim.turn, claim.session)
        assert await store.delete_session(claim.session)
        assert await store.turn_result(one) == TurnResult("dropped")
        assert await store.turn_result(event_name("/undo")) is None

    # ── nobody waits any more ──

    async def test_a_withdrawn_message_that_waits_is_dropped(self, store: Store) -> None:
        await say(store, "one")
        await ask(store, asked("two"))
        await say(store, "three")
        claim = await claim_one(store)
        two = event_name("two")
        assert await store.withdraw("c1", two) == Withdrawn(dropped=True)
        assert await store.withdraw("c1", two) == Withdrawn()
        await store.check(claim)
        assert (await store.turn_result(two)) == TurnResult("dropped")
        await store.commit(claim, an_end("reply"))
        assert _texts(await claim_one(store)) == ["three"]
        assert (await ask(store, asked("two"))).state == "duplicate"

    async def test_a_withdrawn_message_leaves_its_lane_as_it_finds_it(self, store: Store) -> None:
        await ask(store, asked("gone"))
        await store.withdraw("c1", event_name("gone"))
        assert await store.claim(OWNER, 9, [PLATFORM]) == []
        assert (await store.health()).queued == 0
        await say(store, "one", chat="c2")
        await ask(store, asked("two"), chat="c1")
        await ask(store, asked("three"), chat="c1")
        await store.withdraw("c1", event_name("two"))
        claims = await store.claim(OWNER, 9, [PLATFORM])
        assert [_texts(claim) for claim in claims] == [["one"], ["three"]]

    async def test_the_turn_of_a_withdrawn_message_is_stopped(self, store: Store) -> None:
        await ask(store, asked("one"))
        claim = await claim_one(store)
        await say(store, "two")
        withdrawn = await store.withdraw("c1", event_name("one"), said=Said(claim.turn, "half"))
        assert withdrawn == Withdrawn(turn=claim.turn)
        with pytest.raises(LeaseLost):
            await store.commit(claim, an_end("reply"))
        entries = await store.transcript(claim.session)
        assert entries[-1].message == ChatMessage("assistant", "half", note="interrupted")
        assert _texts(await claim_one(store)) == ["two"]

    async def test_a_fresher_turn_is_left_alone(self, store: Store) -> None:
        await ask(store, asked("one"))
        await store.commit(await claim_one(store), an_end("reply"))
        await ask(store, asked("two"))
        fresh = await claim_one(store)
        late = Said(fresh.turn, "late")
        for lane, name in (("c1", "one"), ("c2", "two"), ("c1", "never said")):
            assert await store.withdraw(lane, event_name(name), said=late) == Withdrawn()
        await store.check(fresh)
        assert await words(store) == ["one", "reply", "two"]

    async def test_a_turn_behind_another_is_withdrawn_alone(self, store: Store) -> None:
        """Two lanes that became one have two turns, of which one runs."""
        lanes = [f"agent:{name}:test:dm:1" for name in ("main", "coder")]
        for lane in lanes:
            await ask(store, asked("hello"), chat=lane, lasting=True)
        begun = await store.claim("one", 2, [PLATFORM])
        await store.adopt("coder")
        await store.recover("two")
        running = await claim_one(store, owner="two")
        [behind] = [claim for claim in begun if claim.turn != running.turn]
        name = event_name("hello", chat=behind.lane)
        assert await store.withdraw(lanes[1], name) == Withdrawn(turn=behind.turn)
        await store.check(running)
        assert not (await store.commit(running, TurnEnd("done"))).more
        assert await store.claim("two", 9, [PLATFORM]) == []

    async def test_a_start_gives_up_what_nobody_waits_for(self, open_store: OpenStore) -> None:
        first = await open_store()
        for chat, lasting in (("gone", False), ("runs", True)):
            await ask(first, asked(f"{chat} 1"), chat=chat, lasting=lasting)
            await ask(first, asked(f"{chat} 2"), chat=chat, lasting=lasting)
        await say(first, "person", chat="person")
        await ask(first, asked("over"), chat="over")
        begun = await first.claim("one", 9, [PLATFORM])
        await first.commit(begun[-1], an_end("reply", chat="over"))
        await say(first, "behind", chat="gone")
        await first.close()
        second = await open_store()
        assert await second.drop_unwaited() == 2
        assert await second.drop_unwaited() == 0
        await second.recover("two")
        claims = await second.claim("two", 9, [PLATFORM])
        assert sorted(map(_texts, claims)) == [["behind"], ["person"], ["runs 1"]]
        states = {}
        for name in ("gone 1", "gone 2", "runs 1", "runs 2", "over"):
            result = await second.turn_result(event_name(name, chat=name.split()[0]))
            states[name] = result.state if result is not None else None
        assert states == {
            "gone 1": "stopped",
            "gone 2": "dropped",
            "runs 1": "running",
            "runs 2": "queued",
            "over": "done",
        }

    async def test_what_is_given_up_at_the_start_may_be_all_there_was(self, store: Store) -> None:
        await ask(store, asked("one"))
        await claim_one(store)
        await ask(store, asked("two"))
        assert await store.drop_unwaited() == 2
        assert await store.recover("two") == 0
        assert await store.claim("two", 9, [PLATFORM]) == []
        await command(store, NewSession(), text="/new")
        await converse(store, "hello", "hi")
        assert await words(store) == ["hello", "hi"]
