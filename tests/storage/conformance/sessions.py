"""Sessions are listed, found, trimmed and deleted; transcripts tell what was said."""

from __future__ import annotations

from parley.storage.contract import NewSession, SetTitle, Store, TurnEnd, UndoTurn
from tests.builders import PLATFORM, a_message, an_end, say
from tests.storage.conformance.base import (
    OWNER,
    claim_one,
    command,
    converse,
    current,
    waiting_replies,
    words,
)


class SessionPromises:
    async def test_a_lane_nobody_spoke_in_has_no_session(self, store: Store) -> None:
        assert await store.session_of("nobody") is None
        assert await store.transcript("nothing") == []

    async def test_sessions_are_listed_newest_first(self, store: Store) -> None:
        for number, chat in enumerate(("a", "b", "c", "a")):
            await converse(store, f"hello {number}", f"hi {number}", chat=chat)
        listed = await store.sessions()
        assert [record.lane for record in listed] == ["a", "c", "b"]
        assert [record.lane for record in await store.sessions(limit=1)] == ["a"]
        assert [record.lane for record in await store.sessions(lane="b")] == ["b"]
        older = await store.sessions(before=listed[0].updated_at)
        assert [record.lane for record in older] == ["c", "b"]

    async def test_a_session_is_found_by_how_its_id_begins(self, store: Store) -> None:
        for number in range(60):
            await say(store, "hi", chat=f"c{number}")
        mine = await current(store, "c30")
        assert await store.find_sessions(mine.id) == [mine]
        assert mine in await store.find_sessions(mine.id[:6])
        assert await store.find_sessions(mine.id, lane="c31") == []
        assert await store.find_sessions("", lane="c30") == [mine]
        assert await store.find_sessions("%") == []

    async def test_a_window_moves_forward_only(self, store: Store) -> None:
        for number in range(3):
            await converse(store, f"ask {number}", f"reply {number}")
        session = (await current(store)).id
        entries = await store.transcript(session)
        await store.move_window(session, entries[2].id)
        assert await words(store) == ["ask 1", "reply 1", "ask 2", "reply 2"]
        await store.move_window(session, entries[0].id)
        assert await words(store) == ["ask 1", "reply 1", "ask 2", "reply 2"]
        assert await store.transcript(session, whole=True) == entries

    async def test_an_undone_turn_is_in_no_transcript(self, store: Store) -> None:
        await converse(store, "one", "1")
        await converse(store, "two", "2")
        await command(store, UndoTurn(), text="/undo")
        await converse(store, "three", "3")
        session = (await current(store)).id
        assert await words(store) == ["one", "1", "three", "3"]
        whole = await store.transcript(session, whole=True)
        assert [entry.message.text for entry in whole] == ["one", "1", "three", "3"]

    async def test_entries_know_their_turn(self, store: Store) -> None:
        first = await converse(store, "one", "1")
        second = await converse(store, "two", "2")
        entries = await store.transcript(first.session)
        assert [entry.turn for entry in entries] == [first.turn] * 2 + [second.turn] * 2
        assert [entry.id for entry in entries] == sorted({entry.id for entry in entries})

    async def test_a_running_session_is_not_deleted(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        assert not await store.delete_session(claim.session)
        assert await words(store) == ["hello"]
        await store.commit(claim, an_end("hi"))
        assert await store.delete_session(claim.session)
        assert not await store.delete_session(claim.session)

    async def test_a_deleted_session_is_gone_and_its_lane_goes_on(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await converse(store, "elsewhere", "kept", chat="c2")
        old = (await current(store)).id
        await say(store, "waiting")
        assert await store.delete_session(old)
        assert old not in {record.id for record in await store.sessions()}
        assert await store.transcript(old, whole=True) == []
        fresh = await current(store)
        assert fresh.id != old
        assert (await claim_one(store)).session == fresh.id
        assert await words(store, "c2") == ["elsewhere", "kept"]

    async def test_a_session_that_is_not_current_is_deleted_beside_it(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        old = (await current(store)).id
        await command(store, NewSession(), text="/new")
        new = await current(store)
        assert await store.delete_session(old)
        assert await store.sessions(lane="c1") == [new]

    async def test_messages_of_a_deleted_session_are_not_taken_again(self, store: Store) -> None:
        claim = await converse(store, "hello", "hi")
        await store.delete_session(claim.session)
        assert (await say(store, "hello")).state == "duplicate"
        assert await store.claim(OWNER, 1, [PLATFORM]) == []

    async def test_a_turn_after_a_deletion_is_a_turn_of_its_own(self, store: Store) -> None:
        """Its number was never used before: it names the reply on the platform."""
        old = await converse(store, "hello", "hi")
        await store.delete_session(old.session)
        await say(store, "next")
        claim = await claim_one(store, owner="one")
        assert claim.turn > old.turn
        await store.recover("two")
        resumed = await claim_one(store, owner="two")
        assert [taken.message.text for taken in resumed.messages] == ["next"]

    async def test_a_late_word_on_a_deleted_reply_touches_no_other(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        await store.commit(claim, an_end("hi"))
        [sending] = await store.lease_deliveries(PLATFORM, OWNER, 1)
        await store.delete_session(claim.session)
        await say(store, "next")
        await store.commit(await claim_one(store), an_end("important"))
        await store.delivered(sending.id)
        assert await waiting_replies(store) == ["important"]

    async def test_health_counts_what_is_under_way(self, store: Store) -> None:
        health = await store.health()
        assert (health.queued, health.running, health.undelivered) == (0, 0, 0)
        for number in range(3):
            await say(store, str(number))
        await say(store, "hi", chat="c2")
        await store.submit("c2", "cmd", a_message("/help", chat="c2"), kind="command")
        claims = await store.claim(OWNER, 2, [PLATFORM])
        health = await store.health()
        assert (health.queued, health.running, health.undelivered) == (2, 2, 0)
        await store.commit(claims[0], an_end("reply", chat=claims[0].lane))
        await store.commit(claims[1], TurnEnd("done"))
        health = await store.health()
        assert (health.queued, health.running, health.undelivered) == (2, 0, 1)

    async def test_a_title_belongs_to_its_session(self, store: Store) -> None:
        await command(store, SetTitle("one"), text="/title one")
        await command(store, NewSession(), text="/new")
        assert (await current(store)).title is None
        assert [record.title for record in await store.sessions()] == [None, "one"]
