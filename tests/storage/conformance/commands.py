"""Commands are answered once, and change what they say they change."""

from __future__ import annotations

import asyncio

import pytest

from parley.storage.contract import (
    Draft,
    NewSession,
    Nothing,
    Outcome,
    ResumeSession,
    RetryTurn,
    Said,
    SetModel,
    SetTitle,
    StopTurn,
    Store,
    TurnEnd,
    UndoTurn,
)
from tests.builders import PLATFORM, a_draft, a_message, an_end, say
from tests.storage.conformance.base import (
    OWNER,
    claim_one,
    command,
    converse,
    current,
    spoken,
    waiting_replies,
    words,
)


def _reply(outcome: Outcome) -> Draft:
    return a_draft("answered")


class CommandPromises:
    async def test_a_command_waits_until_it_is_answered(self, store: Store) -> None:
        await say(store, "hello")
        first = await store.submit("c1", "1", a_message("/help"), kind="command")
        second = await store.submit("c2", "2", a_message("/new", chat="c2"), kind="command")
        pending = await store.pending_commands()
        assert [(lane, taken.id) for lane, taken in pending] == [
            ("c1", first.inbox_id),
            ("c2", second.inbox_id),
        ]
        assert pending[0][1].message == a_message("/help")
        await store.answer("c1", first.inbox_id, Nothing(), _reply)
        assert [lane for lane, _ in await store.pending_commands()] == ["c2"]

    async def test_a_command_is_answered_once(self, store: Store) -> None:
        receipt = await store.submit("c1", "1", a_message("/new"), kind="command")
        answers = await asyncio.gather(
            *(store.answer("c1", receipt.inbox_id, NewSession(), _reply) for _ in range(5))
        )
        assert answers.count(None) == 4
        assert len(await store.sessions()) == 2
        assert await waiting_replies(store) == ["answered"]

    async def test_a_message_is_not_answered_as_a_command(self, store: Store) -> None:
        receipt = await say(store, "hello")
        assert await store.answer("c1", receipt.inbox_id, NewSession(), _reply) is None
        assert (await claim_one(store)).messages[0].id == receipt.inbox_id

    async def test_a_command_whose_reply_breaks_changes_nothing(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        before = await current(store)
        receipt = await store.submit("c1", "1", a_message("/new"), kind="command")

        def broken(outcome: Outcome) -> Draft:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store.answer("c1", receipt.inbox_id, NewSession(), broken)
        assert await current(store) == before
        assert len(await store.pending_commands()) == 1
        assert await store.answer("c1", receipt.inbox_id, NewSession(), _reply) == []

    async def test_the_answer_to_a_command_may_be_handed_over(self, store: Store) -> None:
        receipt = await store.submit("c1", "1", a_message("/help"), kind="command")
        handed = await store.answer(
            "c1", receipt.inbox_id, Nothing(), lambda _: a_draft("x", handover=True), owner=OWNER
        )
        assert handed is not None
        assert [(reply.text, reply.state) for reply in handed] == [("x", "sending")]

    async def test_stop_ends_the_running_turn(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        await say(store, "behind")
        outcome = await command(
            store, StopTurn(drop_queued=True, said=Said(claim.turn, "so far")), text="/stop"
        )
        assert (outcome.stopped, outcome.dropped) == (claim.turn, 1)
        assert await words(store) == ["hello", "so far"]
        assert (await command(store, StopTurn(), text="/stop 2")).stopped is None

    async def test_new_starts_an_empty_session_and_keeps_the_old(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        old = await current(store)
        outcome = await command(store, NewSession(title="Plans"), text="/new")
        new = await current(store)
        assert outcome.session == new
        assert (new.title, new.turns) == ("Plans", 0)
        assert await words(store) == []
        kept = {record.id: record.current for record in await store.sessions(lane="c1")}
        assert kept == {old.id: False, new.id: True}
        assert len(await store.transcript(old.id)) == 2

    async def test_new_ends_the_running_turn_in_the_old_session(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        await say(store, "behind")
        outcome = await command(store, NewSession(said=Said(claim.turn, "so")), text="/new")
        assert outcome.stopped == claim.turn
        assert [e.message.text for e in await store.transcript(claim.session)] == ["hello", "so"]
        assert (await claim_one(store)).session == (await current(store)).id != claim.session

    async def test_resume_goes_back_to_a_session(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        old = await current(store)
        await command(store, NewSession(), text="/new")
        outcome = await command(store, ResumeSession(old.id), text="/resume")
        assert not outcome.refused
        assert (await current(store)).id == old.id
        await converse(store, "again", "yes")
        assert await words(store) == ["hello", "hi", "again", "yes"]

    async def test_resume_refuses_a_session_of_another_lane(self, store: Store) -> None:
        await converse(store, "secret", "hush", chat="theirs")
        theirs = await current(store, "theirs")
        await converse(store, "hello", "hi")
        mine = await current(store)
        for wanted in (theirs.id, "no such session"):
            outcome = await command(store, ResumeSession(wanted), text=f"/resume {wanted}")
            assert outcome.refused
            assert (await current(store)).id == mine.id
        assert (await current(store, "theirs")).id == theirs.id

    async def test_a_refused_resume_leaves_the_running_turn_alone(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        await command(store, ResumeSession("nothing"), text="/resume")
        await store.check(claim)

    async def test_undo_takes_back_the_newest_turn(self, store: Store) -> None:
        await converse(store, "one", "1")
        await converse(store, "two", "2")
        assert (await command(store, UndoTurn(), text="/undo")).undone == ("two",)
        assert await words(store) == ["one", "1"]
        assert (await command(store, UndoTurn(), text="/undo 2")).undone == ("one",)
        assert (await command(store, UndoTurn(), text="/undo 3")).undone == ()
        assert await words(store) == []
        assert await store.claim(OWNER, 1, [PLATFORM]) == []

    async def test_undo_takes_back_a_running_turn_first(self, store: Store) -> None:
        await converse(store, "one", "1")
        await say(store, "two")
        claim = await claim_one(store)
        outcome = await command(store, UndoTurn(said=Said(claim.turn, "half")), text="/undo")
        assert (outcome.stopped, outcome.undone) == (claim.turn, ("two",))
        assert await words(store) == ["one", "1"]

    async def test_retry_asks_the_same_again(self, store: Store) -> None:
        await converse(store, "one", "1")
        await say(store, "two")
        claim = await claim_one(store)
        await say(store, "too")
        await store.absorb(claim)
        await store.commit(claim, an_end("2"))
        assert (await command(store, RetryTurn(), text="/retry")).undone == ("two", "too")
        assert await words(store) == ["one", "1"]
        asked = []
        while claims := await store.claim(OWNER, 1, [PLATFORM]):
            assert claims[0].source == claim.source
            asked.append(claims[0].messages[0].message.text)
            await store.commit(claims[0], TurnEnd("done", (spoken(f"again {asked[-1]}"),)))
        assert asked == ["two", "too"]
        assert await words(store) == ["one", "1", "two", "again two", "too", "again too"]

    async def test_retry_may_be_repeated(self, store: Store) -> None:
        await converse(store, "one", "1")
        for number in range(3):
            assert (await command(store, RetryTurn(), text=f"/retry {number}")).undone == ("one",)
            claim = await claim_one(store)
            await store.commit(claim, TurnEnd("done", (spoken(str(number)),)))
            assert await words(store) == ["one", str(number)]

    async def test_a_title_is_kept(self, store: Store) -> None:
        outcome = await command(store, SetTitle("Plans"), text="/title Plans")
        assert outcome.session == await current(store)
        assert (await current(store)).title == "Plans"

    async def test_a_model_is_chosen_for_one_session(self, store: Store) -> None:
        await command(store, SetModel("local", "small"), text="/model")
        await say(store, "hi", chat="c2")
        chosen = await current(store)
        assert (chosen.provider, chosen.model) == ("local", "small")
        assert (await current(store, "c2")).model is None
        await command(store, SetModel(None, None), text="/model default")
        assert (await current(store)).provider is None
