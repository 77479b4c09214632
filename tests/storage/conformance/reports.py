"""What ended in the background enters the session that began it, or is only shown."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from parley.protocol import InboundMessage, Report
from parley.storage.contract import NewSession, ResumeSession, RetryTurn, StopTurn, Store, TurnEnd
from tests.builders import PLATFORM, a_message, an_end, event_name, say
from tests.storage.conformance.base import (
    OWNER,
    OpenStore,
    claim_one,
    command,
    converse,
    current,
    waiting_replies,
    words,
)

_NOTICE = "A process of an earlier conversation ended."


async def _a_report(store: Store, name: str = "w1") -> InboundMessage:
    """The end of work that was begun just now."""
    now = await store.stop("c1", turn=-1)  # of no such turn: it only tells the generation
    report = Report((await current(store)).id, now.generation, _NOTICE)
    return replace(a_message(f"end of {name}"), internal=True, report=report)


async def _submit(store: Store, message: InboundMessage) -> None:
    await store.submit("c1", event_name(message.text), message)


class ReportPromises:
    async def test_a_report_begins_a_turn_where_its_session_goes_on(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        message = await _a_report(store)
        await _submit(store, message)
        claim = await claim_one(store)
        assert claim.messages[0].message == message
        await store.commit(claim, TurnEnd("done"))
        assert await words(store) == ["hello", "hi", "end of w1"]
        assert await waiting_replies(store) == []

    @pytest.mark.parametrize("effect", [NewSession(), StopTurn()], ids=["new", "stop"])
    async def test_a_report_of_what_is_gone_is_only_shown(
        self, open_store: OpenStore, effect: NewSession | StopTurn
    ) -> None:
        store = await open_store()
        await converse(store, "hello", "hi")
        message = await _a_report(store)
        await command(store, effect, text="/gone")
        await waiting_replies(store)
        before = await words(store)
        await _submit(store, message)
        assert await store.claim(OWNER, 9, [PLATFORM]) == []
        assert await words(store) == before
        [told] = await store.lease_deliveries(PLATFORM, OWNER, 9)
        assert (told.text, told.kind, told.source) == (_NOTICE, "notice", message.source)
        assert told.dedupe == f"report:{event_name(message.text)}"
        await store.delivered(told.id)
        await _submit(store, message)
        assert await store.claim(OWNER, 9, [PLATFORM]) == []
        assert await waiting_replies(store) == []
        assert (await store.health()).queued == 0

    async def test_a_report_of_a_session_that_was_over_is_only_shown(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        message = await _a_report(store)
        late = time.time() + 1
        receipt = await store.submit("c1", "anew", a_message("good morning"), fresh_before=late)
        assert receipt.fresh
        await _submit(store, message)
        await store.commit(await claim_one(store), TurnEnd("done"))
        assert await store.claim(OWNER, 9, [PLATFORM]) == []
        assert await words(store) == ["good morning"]
        assert await waiting_replies(store) == [_NOTICE]

    async def test_messages_behind_a_late_report_are_answered(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        messages = [await _a_report(store, f"w{number}") for number in range(2)]
        await command(store, NewSession(), text="/new")
        for message in messages:
            await _submit(store, message)
        await say(store, "a person")
        claim = await claim_one(store)
        assert [taken.message.text for taken in claim.messages] == ["a person"]
        assert (await waiting_replies(store)).count(_NOTICE) == 2

    async def test_a_running_turn_does_not_take_in_a_report_of_what_is_gone(
        self, store: Store
    ) -> None:
        await converse(store, "hello", "hi")
        late = await _a_report(store, "late")
        await command(store, StopTurn(), text="/stop")
        due = await _a_report(store, "due")
        await waiting_replies(store)
        await say(store, "more")
        claim = await claim_one(store)
        for message in (late, due):
            await _submit(store, message)
        absorbed = await store.absorb(claim)
        assert [taken.message.text for taken in absorbed] == ["end of due"]
        assert await waiting_replies(store) == [_NOTICE]
        assert (await words(store))[-2:] == ["more", "end of due"]

    async def test_a_report_waits_for_the_session_it_belongs_to_and_no_longer(
        self, store: Store
    ) -> None:
        """Whoever goes back to the old session finds the notice, not the report."""
        await converse(store, "hello", "hi")
        old = await current(store)
        message = await _a_report(store)
        await command(store, NewSession(), text="/new")
        await _submit(store, message)
        await store.claim(OWNER, 9, [PLATFORM])
        await command(store, ResumeSession(old.id), text="/resume")
        assert await store.claim(OWNER, 9, [PLATFORM]) == []
        assert await words(store) == ["hello", "hi"]

    async def test_a_report_that_waits_is_told_when_the_rest_is_dropped(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        message = await _a_report(store)
        await say(store, "running")
        await claim_one(store)
        await _submit(store, message)
        await say(store, "waiting")
        outcome = await command(store, StopTurn(drop_queued=True), text="/stop")
        assert outcome.dropped == 1
        assert await store.claim(OWNER, 9, [PLATFORM]) == []
        assert _NOTICE in await waiting_replies(store)

    async def test_a_turn_of_a_report_is_run_again_when_a_person_asks(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await _submit(store, await _a_report(store))
        await store.commit(await claim_one(store), an_end("it ended"))
        await command(store, RetryTurn(), text="/retry")
        claim = await claim_one(store)
        assert [taken.message.text for taken in claim.messages] == ["end of w1"]

    async def test_a_turn_of_a_report_is_resumed_as_any_other(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await _submit(store, await _a_report(store))
        claim = await claim_one(store)
        await store.recover("another")
        again = await claim_one(store, owner="another")
        assert (again.turn, again.attempt, again.messages) == (claim.turn, 2, claim.messages)

    async def test_the_notice_of_a_deleted_session_is_shown_all_the_same(
        self, store: Store
    ) -> None:
        await converse(store, "hello", "hi")
        old = await current(store)
        message = await _a_report(store)
        assert await store.delete_session(old.id)
        await _submit(store, message)
        assert await store.claim(OWNER, 9, [PLATFORM]) == []
        assert await waiting_replies(store) == [_NOTICE]
