"""A call is asked about once and decided once, by who may, in time; a grant is for that call."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Literal

import pytest

from parley.storage.contract import NewSession, Settle, Store
from parley.storage.hands import Question, QuestionState, Scope
from tests.builders import an_end, say
from tests.storage.conformance.base import (
    OpenStore,
    claim_one,
    command,
    converse,
    current,
)


async def _a_question(store: Store, name: str = "q1", **changed: Any) -> Question:
    """A question of the session that `c1` goes on with."""
    session = await current(store, changed.get("lane", "c1"))
    question = Question(
        id=name,
        call=f"call of {name}",
        lane="c1",
        session=session.id,
        turn=7,
        person="test:alice",
        owner=False,
        tool="terminal",
        digest="d1",
        what="It runs `rm -r build`.",
        expires_at=time.time() + 60,
        at=1.0,
    )
    return replace(question, **changed)


async def _granted(store: Store, question: Question, **changed: Any) -> bool:
    call = {
        "session": question.session,
        "person": question.person,
        "tool": question.tool,
        "digest": question.digest,
    }
    return await store.is_granted(**{**call, **changed})


class QuestionPromises:
    @pytest.mark.parametrize("scope", ["session", "always"])
    async def test_a_yes_for_longer_to_what_is_asked_each_time_leaves_no_grant(
        self, store: Store, scope: Scope
    ) -> None:
        await converse(store, "hello", "hi")
        question = await store.put_question(await _a_question(store, once="it depends"))
        assert question.once == "it depends"
        assert await store.settle_question(question.id, "allowed", by="test:alice", scope=scope)
        assert not await _granted(store, question)
        assert await store.grants(question.person) == []

    async def test_a_question_waits_in_its_lane_also_after_a_restart(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await converse(store, "hello", "hi")
        one = await _a_question(store, owner=True)
        two = await _a_question(store, "q2", at=2.0)
        for question in (one, two):
            assert await store.put_question(question) == question
        await store.close()
        again = await open_store()
        await again.recover("another")
        assert await again.questions("c1") == [one, two]
        assert await again.questions("c2") == []
        assert await again.question("q1") == one
        assert await again.question("other") is None

    async def test_one_call_is_asked_about_once(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        first = await store.put_question(await _a_question(store))
        assert await store.settle_question("q1", "denied", by="test:alice")
        again = await _a_question(store, "q2", call=first.call, what="Something else.")
        assert await store.put_question(again) == replace(first, state="denied", by="test:alice")
        assert await store.question("q2") is None

    @pytest.mark.parametrize("state", ["allowed", "denied", "expired", "gone"])
    async def test_a_question_is_decided_once(self, store: Store, state: QuestionState) -> None:
        await converse(store, "hello", "hi")
        await store.put_question(await _a_question(store))
        decided = await asyncio.gather(
            store.settle_question("q1", state, by="test:alice"),
            store.settle_question("q1", "allowed", by="test:bob", scope="always"),
            store.settle_question("q1", "denied", by="test:eve"),
        )
        assert [*decided] == [True, False, False]
        found = await store.question("q1")
        assert found is not None and (found.state, found.by) == (state, "test:alice")
        assert await store.questions("c1") == []
        assert await store.grants("test:alice") == []
        assert not await store.settle_question("other", "allowed")

    @pytest.mark.parametrize("state", ["allowed", "denied"])
    async def test_a_word_that_comes_too_late_decides_nothing(
        self, store: Store, state: QuestionState
    ) -> None:
        await converse(store, "hello", "hi")
        question = await _a_question(store, expires_at=time.time() - 1)
        await store.put_question(question)
        assert await store.questions("c1") == []
        assert not await store.settle_question("q1", state, by="test:alice", scope="always")
        assert not await _granted(store, question)
        assert await store.settle_question("q1", "expired")
        found = await store.question("q1")
        assert found is not None and found.state == "expired"

    async def test_nobody_is_asked_for_a_turn_that_was_stopped(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await say(store, "more")
        claim = await claim_one(store)
        await store.put_question(await _a_question(store, turn=claim.turn))
        other = await store.put_question(await _a_question(store, "q2", turn=claim.turn + 1))
        await store.stop("c1")
        assert await store.questions("c1") == [other]
        found = await store.question("q1")
        assert found is not None and found.state == "gone"
        assert not await store.settle_question("q1", "allowed")

    async def test_nobody_is_asked_for_a_turn_that_has_ended(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await say(store, "more")
        claim = await claim_one(store)
        await store.put_question(await _a_question(store, turn=claim.turn))
        other = await store.put_question(await _a_question(store, "q2", turn=claim.turn + 1))
        await store.commit(claim, an_end("well"))
        assert await store.questions("c1") == [other]
        assert not await store.settle_question("q1", "allowed", scope="always")
        assert await store.grants("test:alice") == []

    async def test_an_answer_is_used_once(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        question = await store.put_question(await _a_question(store))
        assert not await store.use_answer("q1")
        await store.settle_question("q1", "allowed", by="test:alice")
        assert [await store.use_answer("q1") for _ in range(2)] == [True, False]
        assert not await store.settle_question("q1", "denied")
        used = replace(question, state="used", by="test:alice")
        assert await store.question_of(question.call) == used
        assert await store.put_question(question) == used
        assert await store.question_of("another") is None
        assert not await store.use_answer("another")

    @pytest.mark.parametrize("state", ["denied", "expired", "gone"])
    async def test_only_a_yes_is_used(self, store: Store, state: QuestionState) -> None:
        await converse(store, "hello", "hi")
        await store.put_question(await _a_question(store))
        await store.settle_question("q1", state)
        assert not await store.use_answer("q1")
        found = await store.question("q1")
        assert found is not None and found.state == state

    @pytest.mark.parametrize("state", ["allowed", "denied"])
    async def test_a_word_is_given_with_its_answer(
        self, store: Store, state: Literal["allowed", "denied"]
    ) -> None:
        await converse(store, "hello", "hi")
        await store.put_question(await _a_question(store))
        word = Settle("q1", state, "test:alice", "always")
        assert not (await command(store, word, text="!yes")).refused
        found = await store.question("q1")
        assert found is not None and (found.state, found.by) == (state, "test:alice")
        assert len(await store.grants("test:alice")) == (state == "allowed")
        assert (await command(store, word, text="!yes again")).refused

    # ── grants ──

    @pytest.mark.parametrize("scope", ["once", "session", "always"])
    async def test_a_grant_is_for_that_very_call(self, store: Store, scope: Scope) -> None:
        await converse(store, "hello", "hi")
        question = await store.put_question(await _a_question(store))
        assert not await _granted(store, question)
        assert await store.settle_question("q1", "allowed", by="test:owner", scope=scope)
        assert await _granted(store, question) is (scope != "once")
        assert await _granted(store, question, session="another") is (scope == "always")
        assert not await _granted(store, question, person="test:bob")
        assert not await _granted(store, question, person="test:owner")
        assert not await _granted(store, question, tool="web_fetch")
        assert not await _granted(store, question, digest="d2")

    async def test_what_was_denied_is_not_granted(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        question = await store.put_question(await _a_question(store))
        await store.settle_question("q1", "denied", by="test:alice", scope="always")
        assert not await _granted(store, question)

    async def test_the_same_grant_is_there_once(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        for name in ("q1", "q2"):
            await store.put_question(await _a_question(store, name))
            await store.settle_question(name, "allowed", scope="always")
        [grant] = await store.grants("test:alice")
        assert (grant.scope, grant.session, grant.tool) == ("always", None, "terminal")
        assert grant.what == "It runs `rm -r build`."

    async def test_a_person_takes_back_their_own_grants(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        for name, scope, person in (
            ("q1", "session", "test:alice"),
            ("q2", "always", "test:alice"),
            ("q3", "always", "test:bob"),
            ("q4", "always", "test:alice"),
        ):
            question = await _a_question(store, name, person=person, digest=name)
            await store.put_question(question)
            await store.settle_question(name, "allowed", scope=scope)  # type: ignore[arg-type]
        listed = await store.grants("test:alice")
        assert [grant.scope for grant in listed] == ["always", "always", "session"]
        [bobs] = await store.grants("test:bob")
        assert await store.revoke_grants("test:alice", bobs.id) == 0
        assert await store.revoke_grants("test:alice", listed[0].id) == 1
        assert not await _granted(store, question)
        assert await store.revoke_grants("test:alice") == 2
        assert await store.grants("test:alice") == []
        assert await store.grants("test:bob") == [bobs]

    async def test_a_deleted_session_takes_its_questions_and_grants_with_it(
        self, store: Store
    ) -> None:
        await converse(store, "hello", "hi")
        kept = await _a_question(store, "q3", digest="d3")
        for name, scope in (("q1", "session"), ("q2", "once"), ("q3", "always")):
            question = kept if name == "q3" else await _a_question(store, name)
            await store.put_question(question)
            if name != "q2":
                await store.settle_question(name, "allowed", scope=scope)  # type: ignore[arg-type]
        assert await store.delete_session(kept.session)
        assert [await store.question(name) for name in ("q1", "q2", "q3")] == [None] * 3
        assert await store.questions("c1") == []
        assert [grant.scope for grant in await store.grants("test:alice")] == ["always"]
        assert await _granted(store, kept, session="another")

    async def test_a_grant_for_a_session_holds_when_it_is_resumed(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        question = await store.put_question(await _a_question(store))
        await store.settle_question("q1", "allowed", scope="session")
        await command(store, NewSession(), text="/new")
        assert not await _granted(store, question, session=(await current(store)).id)
        assert await _granted(store, question)

    async def test_a_question_follows_its_lane_to_another_namespace(self, store: Store) -> None:
        old, new = "agent:main:test:dm:1", "agent:coder:test:dm:1"
        await converse(store, "hello", "hi", chat=old)
        question = await store.put_question(await _a_question(store, lane=old))
        await store.adopt("coder")
        assert await store.questions(new) == [replace(question, lane=new)]
