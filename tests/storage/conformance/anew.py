"""A session that is over gives way to a new one, only ever between turns, and never under work."""

from __future__ import annotations

import asyncio
import time

import pytest

from parley.storage.contract import (
    Draft,
    NewSession,
    RateLimit,
    Receipt,
    ResumeSession,
    Said,
    SessionRecord,
    SetModel,
    SetTitle,
    StopTurn,
    Store,
    TurnEnd,
    UndoTurn,
)
from tests.builders import PLATFORM, a_message, a_source, an_end, event_name, say
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


def _notice(session: SessionRecord) -> Draft:
    return Draft("to be named", a_source(session.lane), f"anew: {session.turns}", kind="notice")


async def _say_late(store: Store, text: str, *, chat: str = "c1") -> Receipt:
    """A person writes when all that was said until now is over."""
    return await store.submit(
        chat,
        event_name(text, chat=chat),
        a_message(text, chat=chat),
        fresh_before=time.time(),
        notice=_notice,
    )


async def _is_over(store: Store) -> bool:
    """Whether a message begins a new session; it stays as an answered one."""
    before = (await current(store)).id
    receipt = await _say_late(store, f"at {time.time_ns()}")
    if (await store.claim(OWNER, 1, [PLATFORM])) != []:
        await store.stop("c1")
    assert receipt.fresh == ((await current(store)).id != before)
    return receipt.fresh


class AnewPromises:
    async def test_a_session_that_is_over_gives_way_to_a_new_one(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        old = await current(store)
        receipt = await _say_late(store, "good morning")
        assert (receipt.state, receipt.fresh) == ("queued", True)
        new = await current(store)
        assert (await claim_one(store)).session == new.id != old.id
        assert await words(store) == ["good morning"]
        assert [entry.message.text for entry in await store.transcript(old.id)] == ["hello", "hi"]
        assert [record.id for record in await store.sessions(lane="c1")] == [new.id, old.id]

    async def test_a_session_used_since_then_goes_on(self, store: Store) -> None:
        began = time.time()
        await converse(store, "hello", "hi")
        old = await current(store)
        message = a_message("more")
        receipt = await store.submit("c1", "more", message, fresh_before=began, notice=_notice)
        assert (receipt.state, receipt.fresh) == ("queued", False)
        assert (await claim_one(store)).session == old.id
        assert await waiting_replies(store) == []

    async def test_a_new_session_is_told_of_ahead_of_the_reply(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await _say_late(store, "good morning")
        await store.commit(await claim_one(store), an_end("and to you"))
        [told] = await store.lease_deliveries(PLATFORM, OWNER, 9)
        assert (told.text, told.kind) == ("anew: 0", "notice")
        assert told.dedupe == f"reset:{(await current(store)).id}"
        assert (told.lane, told.turn) == ("c1", None)
        await store.delivered(told.id)
        assert await waiting_replies(store) == ["and to you"]

    async def test_without_a_notice_nothing_is_told(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        receipt = await store.submit("c1", "2", a_message("2"), fresh_before=time.time())
        assert receipt.fresh
        assert await waiting_replies(store) == []

    async def test_a_notice_that_breaks_changes_nothing(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        before = await store.sessions()

        def broken(session: SessionRecord) -> Draft:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store.submit(
                "c1", "2", a_message("2"), fresh_before=time.time() + 1, notice=broken
            )
        assert await store.sessions() == before
        assert (await store.health()).queued == 0

    async def test_the_first_message_of_a_lane_begins_nothing_anew(self, store: Store) -> None:
        assert not (await _say_late(store, "hello")).fresh
        assert len(await store.sessions()) == 1

    async def test_a_session_in_which_nothing_was_said_is_not_replaced(self, store: Store) -> None:
        await command(store, SetTitle("Plans"), text="/title Plans")
        assert not (await _say_late(store, "hello")).fresh
        assert (await current(store)).title == "Plans"

    async def test_a_repeated_message_begins_nothing_anew(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        old = await current(store)
        receipt = await _say_late(store, "hello")
        assert (receipt.state, receipt.fresh) == ("duplicate", False)
        assert await current(store) == old
        assert await waiting_replies(store) == []

    async def test_of_many_messages_at_once_one_begins_anew(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        receipts = await asyncio.gather(*(_say_late(store, str(n)) for n in range(20)))
        assert [receipt.fresh for receipt in receipts] == [True] + [False] * 19
        assert len(await store.sessions()) == 2

    async def test_a_command_begins_nothing_anew(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        receipt = await store.submit(
            "c1", "1", a_message("/help"), kind="command", fresh_before=time.time(), notice=_notice
        )
        assert (receipt.state, receipt.fresh) == ("queued", False)
        assert len(await store.sessions()) == 1

    async def test_a_message_that_is_refused_begins_nothing_anew(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store(rate_limit=RateLimit(capacity=0.5, per_second=0.001))
        await converse(store, "hello", "hi")
        receipt = await store.submit(
            "c1", "2", a_message("2"), user="alice", fresh_before=time.time(), notice=_notice
        )
        assert (receipt.state, receipt.fresh) == ("rate_limited", False)
        assert len(await store.sessions()) == 1

    async def test_a_turn_that_runs_keeps_its_session(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await say(store, "question")
        claim = await claim_one(store)
        assert not (await _say_late(store, "behind")).fresh
        await store.release(claim)
        assert not (await _say_late(store, "further behind")).fresh
        await store.recover("another")
        assert not (await _say_late(store, "last")).fresh
        assert (await current(store)).id == claim.session

    async def test_a_message_that_waits_keeps_its_session(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await store.submit("c1", "later", a_message("later"), not_before=time.time() + 3600)
        assert not (await _say_late(store, "now")).fresh

    async def test_other_lanes_are_left_alone(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await converse(store, "hello", "hi", chat="c2")
        other = await current(store, "c2")
        assert (await _say_late(store, "more")).fresh
        assert await current(store, "c2") == other

    @pytest.mark.parametrize(
        "effect", [SetModel("local", "small"), SetTitle("Plans"), UndoTurn()], ids=str
    )
    async def test_a_session_that_a_person_just_changed_goes_on(
        self, store: Store, effect: SetModel | SetTitle | UndoTurn
    ) -> None:
        await converse(store, "one", "1")
        await converse(store, "two", "2")
        then = time.time()
        await command(store, effect, text="/change")
        assert not (await store.submit("c1", "3", a_message("3"), fresh_before=then)).fresh

    async def test_a_session_that_was_gone_back_to_goes_on(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        old = await current(store)
        await command(store, NewSession(), text="/new")
        then = time.time()
        await command(store, ResumeSession(old.id), text="/resume")
        assert not (await store.submit("c1", "more", a_message("more"), fresh_before=then)).fresh
        assert (await claim_one(store)).session == old.id

    async def test_the_end_of_a_turn_is_the_last_use_of_its_session(self, store: Store) -> None:
        await say(store, "one")
        claim = await claim_one(store)
        then = time.time()
        await command(store, StopTurn(said=Said(claim.turn, "so far")), text="/stop")
        assert (await current(store)).updated_at >= then
        await say(store, "two")
        claim = await claim_one(store)
        then = time.time()
        await store.commit(claim, TurnEnd("failed"))
        assert (await current(store)).updated_at >= then
