"""The lanes of a profile may be given another namespace, and back; nothing of them is lost."""

from __future__ import annotations

import time

import pytest

from parley.storage.contract import Job, LeaseLost, NewSession, Store, StoreError, TurnEnd
from tests.builders import PLATFORM, a_draft, a_message, say
from tests.storage.conformance.base import (
    OWNER,
    OpenStore,
    a_record,
    a_work,
    claim_one,
    command,
    converse,
    current,
    spoken,
    waiting_replies,
    words,
)

MAIN, CODER, WRITER = (f"agent:{name}:test:dm:99" for name in ("main", "coder", "writer"))


async def _answer_all(store: Store) -> list[str]:
    """Run every turn there is; the messages, in the order they were answered."""
    answered = []
    while claims := await store.claim(OWNER, 1, [PLATFORM]):
        answered += [taken.message.text for taken in claims[0].messages]
        await store.commit(claims[0], TurnEnd("done"))
    return answered


class AdoptionPromises:
    async def test_a_lane_is_found_under_its_new_name_with_all_it_had(self, store: Store) -> None:
        await converse(store, "hello", "hi", chat=MAIN)
        await command(store, NewSession(title="Plans"), text="/new", chat=MAIN)
        assert await waiting_replies(store) != []
        await converse(store, "again", "yes", chat=MAIN)
        await say(store, "waiting", chat=MAIN)
        before = await store.sessions(lane=MAIN)
        assert await store.adopt("coder") == 1
        assert await store.session_of(MAIN) is None
        assert await store.sessions(lane=MAIN) == []
        after = await store.sessions(lane=CODER)
        assert [(r.id, r.title, r.turns, r.current, r.updated_at) for r in after] == [
            (r.id, r.title, r.turns, r.current, r.updated_at) for r in before
        ]
        assert await words(store, CODER) == ["again", "yes"]
        claim = await claim_one(store)
        assert (claim.lane, claim.session) == (CODER, after[0].id)
        assert claim.messages[0].message == a_message("waiting", chat=MAIN)
        assert (await say(store, "hello", chat=MAIN)).state == "duplicate"

    async def test_there_and_back_is_as_it_was(self, store: Store) -> None:
        for chat in (MAIN, "agent:main:test:group:g1:alice", "c1"):
            await converse(store, "hello", "hi", chat=chat)
        before = await store.sessions()
        assert await store.adopt("coder") == 2
        assert {record.lane for record in await store.sessions()} == {
            CODER,
            "agent:coder:test:group:g1:alice",
            "c1",
        }
        assert await store.adopt("main") == 2
        assert await store.sessions() == before

    async def test_what_is_in_its_namespace_is_left_alone(self, store: Store) -> None:
        mine = ("agent:main:test:dm:99", "agent:main:x", "agent:main::")
        plain = ("c1", "agent", "agent:", "agent:other", "agents:coder:test", "agen:x:y")
        for chat in (*mine, *plain):
            await say(store, "hello", chat=chat)
        before = sorted(record.lane for record in await store.sessions())
        assert await store.adopt("main") == 0
        assert sorted(record.lane for record in await store.sessions()) == before
        assert await store.adopt("coder") == len(mine)
        lanes = {record.lane for record in await store.sessions()}
        assert lanes == {*plain, CODER, "agent:coder:x", "agent:coder::"}

    async def test_only_the_namespace_changes(self, store: Store) -> None:
        """Neighbours by name, and namespaces that are words of a key themselves."""
        names = ("main-2", "mainly", "ma", "agent", "test", "")
        for name in names:
            await say(store, "hello", chat=f"agent:{name}:test:dm:{name}:agent:main%3A")
        assert await store.adopt("main") == len(names)
        assert {record.lane for record in await store.sessions()} == {
            f"agent:main:test:dm:{name}:agent:main%3A" for name in names
        }

    async def test_a_name_with_any_character_is_renamed_whole(self, store: Store) -> None:
        await say(store, "hello", chat="agent:main:test:dm:a\0b😀\n:c")
        assert await store.adopt("coder") == 1
        assert (await claim_one(store)).lane == "agent:coder:test:dm:a\0b😀\n:c"

    @pytest.mark.parametrize("name", ["", ":", "a:b"])
    async def test_a_namespace_that_no_key_can_have_is_refused(
        self, store: Store, name: str
    ) -> None:
        await say(store, "hello", chat=MAIN)
        with pytest.raises(StoreError):
            await store.adopt(name)
        assert (await claim_one(store)).lane == MAIN

    async def test_replies_and_jobs_follow_their_lane(self, store: Store) -> None:
        await say(store, "hello", chat=MAIN)
        end = TurnEnd("done", (), (a_draft("one"), a_draft("two")))
        await store.commit(await claim_one(store), end)
        [sending] = await store.lease_deliveries(PLATFORM, OWNER, 9)
        await store.retry_delivery(sending.id, None, "away")
        await store.schedule(Job("job", MAIN, a_message("by job"), at=time.time() - 1))
        await store.adopt("coder")
        assert await store.unpark(MAIN) == 0
        assert await store.unpark(CODER) == 1
        assert await waiting_replies(store) == ["one", "two"]
        await store.tick()
        assert (await claim_one(store)).lane == CODER

    async def test_a_job_for_a_lane_nobody_spoke_in_follows_too(self, store: Store) -> None:
        await store.schedule(Job("job", MAIN, a_message("by job"), at=time.time() - 1))
        assert await store.adopt("coder") == 0
        await store.tick()
        assert (await claim_one(store)).lane == CODER

    @pytest.mark.parametrize("spoken_in", [True, False])
    async def test_requests_follow_their_lane(self, store: Store, spoken_in: bool) -> None:
        if spoken_in:
            await say(store, "hello", chat=MAIN)
        await store.open_request(a_record("one", lane=MAIN))
        await store.open_request(a_record("other", lane="c1"))
        assert await store.adopt("coder") == spoken_in
        assert [record.lane for record in await store.open_requests()] == [CODER, "c1"]

    async def test_commands_and_work_follow_their_lane(self, store: Store) -> None:
        await converse(store, "hello", "hi", chat=MAIN)
        session = await current(store, MAIN)
        await store.begin_work(a_work("w1", session))
        await store.submit(MAIN, "cmd", a_message("/help"), kind="command")
        await store.adopt("coder")
        assert [work.lane for work in await store.works(session=session.id)] == [CODER]
        assert [lane for lane, _ in await store.pending_commands()] == [CODER]

    async def test_a_running_turn_is_resumed_under_the_new_name(
        self, open_store: OpenStore
    ) -> None:
        first = await open_store()
        await say(first, "hello", chat=MAIN)
        begun = await claim_one(first, owner="one")
        await first.step(begun, [spoken("step")])
        second = await open_store()
        assert await second.adopt("coder") == 1
        for call in (first.check(begun), first.commit(begun, TurnEnd("done"))):
            with pytest.raises(LeaseLost):
                await call
        assert await second.recover("two") == 1
        resumed = await claim_one(second, owner="two")
        assert (resumed.lane, resumed.turn, resumed.attempt) == (CODER, begun.turn, 2)
        assert resumed.epoch > begun.epoch
        assert await words(second, CODER) == ["hello", "step"]

    # ── two become one ──

    async def test_sessions_of_both_belong_to_the_one_that_stays(self, store: Store) -> None:
        await converse(store, "hello", "hi", chat=CODER)
        await converse(store, "elsewhere", "yes", chat=MAIN)
        await converse(store, "and there", "yes", chat=WRITER)
        newest = await current(store, WRITER)
        before = [record.id for record in await store.sessions()]
        assert await store.adopt("coder") == 2
        after = await store.sessions(lane=CODER)
        assert [record.id for record in after] == before
        assert [record.id for record in after if record.current] == [newest.id]
        assert await words(store, CODER) == ["and there", "yes"]
        assert await store.adopt("coder") == 0

    async def test_messages_of_both_are_answered_in_order_of_arrival(self, store: Store) -> None:
        for number in range(6):
            await say(store, str(number), chat=(MAIN, CODER, WRITER)[number % 3])
        assert await store.adopt("coder") == 2
        assert (await store.health()).queued == 6
        assert await _answer_all(store) == ["0", "1", "2", "3", "4", "5"]

    async def test_a_message_of_the_one_that_goes_wakes_the_one_that_stays(
        self, store: Store
    ) -> None:
        await converse(store, "hello", "hi", chat=CODER)
        await say(store, "waiting", chat=MAIN)
        await store.adopt("coder")
        assert (await claim_one(store)).messages[0].message.text == "waiting"

    async def test_lanes_that_were_quiet_stay_quiet(self, store: Store) -> None:
        for chat in (MAIN, CODER):
            await converse(store, "hello", "hi", chat=chat)
        await store.adopt("coder")
        assert await store.claim(OWNER, 9, [PLATFORM]) == []
        assert not (await store.stop(CODER)).dropped

    @pytest.mark.parametrize("namespace", ["main", "coder"])
    async def test_turns_that_ran_in_both_are_resumed_one_after_the_other(
        self, store: Store, namespace: str
    ) -> None:
        for chat in (MAIN, CODER):
            await say(store, f"in {chat}", chat=chat)
        begun = await store.claim("one", 2, [PLATFORM])
        for claim in begun:
            await store.step(claim, [spoken("step")])
        assert await store.adopt(namespace) == 1
        for claim in begun:
            with pytest.raises(LeaseLost):
                await store.commit(claim, TurnEnd("done"))
        await store.recover("two")
        for claim, more in zip(begun, (True, False), strict=True):
            again = await claim_one(store, owner="two")
            assert (again.turn, again.session, again.attempt) == (claim.turn, claim.session, 2)
            assert again.epoch > max(claim.epoch for claim in begun)
            assert again.messages == claim.messages
            assert await store.claim("two", 9, [PLATFORM]) == []
            assert (await store.commit(again, TurnEnd("done"))).more is more
        assert (await store.health()).running == 0

    async def test_replies_of_both_go_in_the_order_they_were_made(self, store: Store) -> None:
        for number, chat in enumerate((MAIN, CODER, MAIN)):
            await say(store, str(number), chat=chat)
            end = TurnEnd("done", (), (a_draft(f"reply {number}"),))
            await store.commit(await claim_one(store), end)
        await store.adopt("main")
        assert await waiting_replies(store) == ["reply 0", "reply 1", "reply 2"]

    async def test_who_was_stopped_in_one_is_not_heard_in_the_other(self, store: Store) -> None:
        for number in range(3):
            await say(store, str(number), chat=MAIN)
            stopped = await claim_one(store)
            await store.stop(MAIN)
        await say(store, "hello", chat=CODER)
        await store.adopt("coder")
        fresh = await claim_one(store)
        assert fresh.generation > stopped.generation
        assert fresh.epoch > stopped.epoch
        await store.adopt("main")
        with pytest.raises(LeaseLost):
            await store.check(stopped)
