"""What was said is found by its words: only what still counts, and only what one may see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parley.protocol import Behalf, ChatMessage, InboundMessage, Request, SessionSource
from parley.storage.contract import NewSession, SetTitle, Store, TurnEnd, UndoTurn
from tests.builders import PLATFORM, a_draft, a_message, a_source, an_end, say
from tests.storage.conformance.base import (
    OWNER,
    OpenStore,
    asked,
    claim_one,
    command,
    converse,
    current,
    spoken,
)


async def _found(
    store: Store, query: str, *, person: str | None = None, lane: str | None = None
) -> set[str]:
    found = await store.search_entries(query, person=person, lane=lane, limit=100)
    return {entry.excerpt for entry in found}


async def _turn(store: Store, lane: str, message: InboundMessage, *replies: str) -> None:
    await store.submit(lane, f"{lane} {message.event_id}", message)
    [claim] = await store.claim(OWNER, 1, [message.source.platform])
    await store.commit(claim, TurnEnd("done", tuple(spoken(text) for text in replies)))


class SearchPromises:
    async def test_what_was_said_is_found_by_all_its_words(self, store: Store) -> None:
        await converse(store, "where is the Blue key?", "under the green mat")
        assert await _found(store, "key") == {"where is the Blue key?"}
        assert await _found(store, "the") == {"where is the Blue key?", "under the green mat"}
        assert await _found(store, "KEY blue") == {"where is the Blue key?"}
        assert await _found(store, "blue mat") == set()
        assert await _found(store, "gre") == {"under the green mat"}

    @pytest.mark.parametrize("query", ["", "  ", "?!", '"', "'", "*", "- ^", "\0", "\ud800"])
    async def test_a_query_without_a_word_finds_nothing(self, store: Store, query: str) -> None:
        await converse(store, 'a "quoted" thing *', "- NOT that")
        assert await _found(store, query) == set()

    async def test_accents_and_case_make_no_difference(self, store: Store) -> None:
        await converse(store, "Das Café in Łódź", "ÜBER den Fluß")
        assert await _found(store, "cafe") == await _found(store, "CAFÉ") == {"Das Café in Łódź"}
        assert await _found(store, "uber") == {"ÜBER den Fluß"}

    async def test_what_a_search_found_says_where_it_was_said(self, store: Store) -> None:
        await converse(store, "where is the key?", "under the mat")
        await command(store, SetTitle("the house"), text="/title")
        await command(store, NewSession(), text="/new")
        old = next(record for record in await store.sessions() if not record.current)
        [found] = await store.search_entries("mat")
        assert (found.session, found.title, found.lane) == (old.id, "the house", "c1")
        assert (found.role, found.excerpt) == ("assistant", "under the mat")
        [entry] = [e for e in await store.transcript(old.id) if e.message.text == "under the mat"]
        assert (found.id, found.at) == (entry.id, entry.at)

    async def test_an_excerpt_of_a_long_text_is_short_and_holds_the_word(
        self, store: Store
    ) -> None:
        long = "word " * 2000 + "needle " + "word " * 500
        await converse(store, long, "short")
        [found] = await store.search_entries("needle")
        assert "needle" in found.excerpt
        assert len(found.excerpt) <= 300
        await converse(store, "x" * 5000 + " haystack", "ok", chat="c2")
        [found] = await store.search_entries("haystack")
        assert len(found.excerpt) <= 300

    async def test_only_what_people_and_the_agent_said_is_found(self, store: Store) -> None:
        await say(store, "look it up")
        claim = await claim_one(store)
        result = ChatMessage("tool", "a secret result", tool_call_id="1", tool_name="read_file")
        await store.step(claim, [result, spoken("found it")])
        await store.commit(claim, an_end("done"))
        assert await _found(store, "secret") == set()
        assert await _found(store, "found") == {"found it"}

    async def test_what_was_taken_back_is_not_found(self, store: Store) -> None:
        await converse(store, "the key one", "ok")
        await converse(store, "the key two", "fine")
        assert await _found(store, "key") == {"the key one", "the key two"}
        await command(store, UndoTurn(), text="/undo")
        assert await _found(store, "key") == {"the key one"}

    async def test_a_deleted_session_is_not_found_and_what_comes_after_it_is(
        self, store: Store
    ) -> None:
        """The numbers of the last entries are given out again when those are gone."""
        await converse(store, "the key one", "ok")
        assert await _found(store, "key") == {"the key one"}
        assert await store.delete_session((await current(store)).id)
        assert await _found(store, "key") == set()
        await converse(store, "the key two", "fine")
        await converse(store, "the key three", "well")
        assert await _found(store, "key") == {"the key two", "the key three"}

    async def test_the_best_come_first_and_only_so_many(self, store: Store) -> None:
        await converse(store, "a key and a lock and a door and more of it", "ok")
        await converse(store, "key", "fine")
        assert [e.excerpt for e in await store.search_entries("key", limit=1)] == ["key"]

    async def test_entries_are_taken_in_bit_by_bit(self, open_store: OpenStore) -> None:
        store = await open_store()
        for number in range(3):
            await converse(store, f"question {number}", f"answer {number}")
        assert await store.index_entries(limit=4)
        await store.close()
        again = await open_store()
        assert not await again.index_entries(limit=4)
        assert not await again.index_entries(limit=4)
        assert len(await _found(again, "question")) == 3

    async def test_a_person_finds_their_own_and_what_is_said_here(self, store: Store) -> None:
        for chat in ("c1", "c2", "c3"):
            await converse(store, f"key of {chat}", "ok", chat=chat)
        assert await _found(store, "key", person="test:user-of-c1") == {"key of c1"}
        assert await _found(store, "key", person="test:user-of-c1", lane="c2") == {
            "key of c1",
            "key of c2",
        }
        assert await _found(store, "key", person="test:nobody") == set()
        assert await _found(store, "key", lane="c3") == {"key of c3"}
        assert len(await _found(store, "key")) == 3

    async def test_a_delegated_task_is_of_whoever_delegated_it(self, store: Store) -> None:
        source = SessionSource(PLATFORM, "task-1")
        request = Request(
            "r", (asked("find the key"),), behalf=Behalf("test:alice", "s1", platform=PLATFORM)
        )
        message = InboundMessage(source, "find the key", "e", request=request)
        await _turn(store, "task", message, "the key is there")
        assert len(await _found(store, "key", person="test:alice")) == 2
        assert await _found(store, "key", person=f"{PLATFORM}:task-1") == set()

    async def test_a_posted_message_is_found(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await store.post("c1", a_draft("the key"), said=spoken("the key"))
        assert await _found(store, "key", person="test:user-of-c1") == {"the key"}

    # ── where someone has spoken ──

    async def test_the_conversations_of_a_person_are_where_they_spoke(self, store: Store) -> None:
        alice = [
            replace(a_source("c1"), user_id="alice"),
            replace(a_source("g1"), user_id="alice", chat_type="group", thread_id="t1"),
            SessionSource("api", "k1", user_id="alice"),
            SessionSource("task", "t1", user_id="alice"),
        ]
        for number, source in enumerate([*alice, alice[0]]):
            message = InboundMessage(source, "hello", f"e{number}")
            await _turn(store, f"{source.platform} {source.chat_id}", message, "hi")
        bob = replace(alice[1], user_id="bob")
        await _turn(store, "test g1", InboundMessage(bob, "me too", "e9"), "hi")
        await command(store, SetTitle("the house"), text="/title", chat="test c1")
        found = await store.conversations("test:alice")
        assert [place.source for place in found] == [alice[0], alice[1]]
        session = await current(store, "test c1")
        assert (found[0].lane, found[0].session) == ("test c1", session.id)
        assert found[0].title == "the house"
        assert await store.conversations("api:alice") == []
        assert await store.conversations("test:eve") == []
        assert [place.source for place in await store.conversations("test:bob")] == [bob]
        everyone = await store.conversations(None)
        assert [place.source for place in everyone] == [alice[0], bob]
        assert await store.conversations(None, limit=1) == everyone[:1]

    async def test_a_conversation_is_there_also_when_its_session_is_new(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await command(store, NewSession(), text="/new")
        session = await current(store)
        for found in (
            await store.conversations("test:user-of-c1"),
            await store.conversations(None),
        ):
            assert [(place.lane, place.session) for place in found] == [("c1", session.id)]

    async def test_conversations_follow_their_lane_to_another_namespace(self, store: Store) -> None:
        """Also where two become one."""
        old, new = "agent:main:test:dm:1", "agent:coder:test:dm:1"
        for number, lane in enumerate((old, new)):
            await _turn(store, lane, InboundMessage(a_source("1"), "hello", f"e{number}"), "hi")
        assert len(await store.conversations("test:user-of-1")) == 2
        for namespace, lane in (("coder", new), ("third", new.replace("coder", "third"))):
            await store.adopt(namespace)
            [found] = await store.conversations("test:user-of-1")
            assert found.lane == lane

    async def test_who_spoke_in_a_chat_without_users_is_the_chat(self, store: Store) -> None:
        source = SessionSource(PLATFORM, "c1")
        await _turn(store, "c1", replace(a_message("hello"), source=source), "hi")
        [found] = await store.conversations("test:c1")
        assert found.source == source
