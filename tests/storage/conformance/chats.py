"""Chats are numbered for good; each is a room with a lane of its own, or a session of a lane."""

from __future__ import annotations

import asyncio

import pytest

from parley.storage.contract import NewSession, Store, StoreError
from parley.storage.people import Chat
from tests.builders import PLATFORM, a_draft, a_source, say
from tests.storage.conformance.base import OpenStore, claim_one, command, converse, current

ALICE, BOB = "test:alice", "test:bob"
MAIN, CODER = (f"agent:{name}:test:dm:room" for name in ("main", "coder"))


async def _room(store: Store, lane: str, *, person: str = ALICE) -> Chat:
    """A chat in a room, whose lane is named as the room."""
    chat = await store.open_chat(person, key=f"made for {lane}")
    return await store.place_chat(person, chat.number, a_source(lane), lane)


async def _of_current(store: Store, lane: str, *, person: str = ALICE) -> Chat:
    return await store.chat_of_session(person, (await current(store, lane)).id)


class ChatPromises:
    async def test_chats_are_numbered_for_each_person(self, open_store: OpenStore) -> None:
        store = await open_store()
        opened = [
            await store.open_chat(person, key=key, name=name)
            for person, key, name in (
                (ALICE, "a", "Pl\ud83dns"),
                (ALICE, "b", None),
                (BOB, "a", "B"),
            )
        ]
        assert [(chat.person, chat.label, chat.name) for chat in opened] == [
            *((ALICE, "C1", "Pl�ns"), (ALICE, "C2", None), (BOB, "C1", "B"))
        ]
        for chat in opened:
            assert (chat.lane, chat.session, chat.source, chat.archived) == (None,) * 3 + (False,)
        await store.close()
        again = await open_store()
        assert await again.chats(ALICE) == opened[:2]
        assert await again.chats(BOB) == opened[2:]
        assert await again.chats("test:carol") == []
        assert (await again.open_chat(ALICE, key="c")).number == 3

    async def test_a_chat_is_opened_once_for_each_key(self, open_store: OpenStore) -> None:
        first, second = await open_store(), await open_store()
        opened = await asyncio.gather(
            *(
                store.open_chat(ALICE, key=key, name=key)
                for store in (first, second)
                for key in ("one", "two", "one", "three")
            )
        )
        assert {chat.number for chat in opened} == {1, 2, 3}
        assert len({(chat.number, chat.name) for chat in opened}) == 3
        again = await first.open_chat(ALICE, key="one", name="another name")
        assert again in opened
        assert len(await second.chats(ALICE)) == 3

    # ── rooms ──

    async def test_a_placed_chat_has_a_lane_that_can_be_spoken_in(self, store: Store) -> None:
        chat = await store.open_chat(ALICE, key="k", name="Plans")
        assert await store.unplaced_chats() == [chat]
        placed = await store.place_chat(ALICE, 1, a_source("room"), "room")
        session = await current(store, "room")
        assert (placed.lane, placed.source) == ("room", a_source("room"))
        assert (placed.session, placed.name, placed.number) == (session.id, "Plans", 1)
        assert placed.created_at == chat.created_at
        assert await store.unplaced_chats() == []
        assert await store.chat_at("room") == placed
        assert await store.open_chat(ALICE, key="k") == placed
        await store.post("room", a_draft("welcome", chat="room"))
        [reply] = await store.lease_deliveries(PLATFORM, "one", 9)
        assert (reply.text, reply.lane, reply.session) == ("welcome", "room", session.id)
        await say(store, "hello", chat="room")
        assert (await claim_one(store)).session == session.id

    async def test_a_chat_takes_over_a_lane_that_is_there(self, store: Store) -> None:
        await converse(store, "hello", "hi", chat="room")
        session = await current(store, "room")
        assert (await _room(store, "room")).session == session.id
        assert (await current(store, "room")) == session

    async def test_a_room_that_moved_is_the_same_chat(self, open_store: OpenStore) -> None:
        store = await open_store()
        before = await _room(store, "old")
        for _ in range(2):
            moved = await store.place_chat(ALICE, 1, a_source("new"), "new")
        assert (moved.number, moved.session) == (1, before.session)
        assert (moved.lane, moved.source) == ("new", a_source("new"))
        await store.close()
        again = await open_store()
        assert await again.chat_at("old") is None
        assert await again.chat_at("new") == moved
        assert await again.chats(ALICE) == [moved]
        assert (await current(again, "new")).id != before.session

    async def test_a_lane_has_one_chat_to_itself(self, store: Store) -> None:
        one = await _room(store, "room")
        for person in (ALICE, BOB):
            chat = await store.open_chat(person, key="other")
            with pytest.raises(StoreError, match="another chat"):
                await store.place_chat(person, chat.number, a_source("room"), "room")
        assert await store.chat_at("room") == one
        assert len(await store.unplaced_chats()) == 2

    async def test_only_a_chat_that_waits_for_a_room_or_has_one_is_placed(
        self, store: Store
    ) -> None:
        await converse(store, "hello", "hi")
        chat = await _of_current(store, "c1")
        for number in (chat.number, 7):
            with pytest.raises(StoreError, match=f"no chat C{number} "):
                await store.place_chat(ALICE, number, a_source("room"), "room")
        assert await store.session_of("room") is None
        assert await store.chats(ALICE) == [chat]

    async def test_chats_without_a_room_are_found_whoever_opened_them(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await _room(store, "room")
        waiting = [await store.open_chat(person, key="k") for person in (BOB, ALICE)]
        await store.close()
        assert await (await open_store()).unplaced_chats() == waiting

    # ── sessions ──

    async def test_a_session_is_one_chat_of_a_person(self, open_store: OpenStore) -> None:
        store = await open_store()
        await converse(store, "hello", "hi")
        first = await _of_current(store, "c1")
        await command(store, NewSession(), text="/new")
        second = await _of_current(store, "c1")
        assert (first.number, second.number) == (1, 2)
        assert first.session != second.session
        assert (first.lane, first.source) == ("c1", None)
        others = await _of_current(store, "c1", person=BOB)
        assert (others.number, others.session) == (1, second.session)
        await store.close()
        again = await open_store()
        assert await _of_current(again, "c1") == second
        assert await again.chats(ALICE) == [first, second]
        assert await again.unplaced_chats() == []

    async def test_a_session_at_once_is_one_chat(self, open_store: OpenStore) -> None:
        first, second = await open_store(), await open_store()
        await converse(first, "hello", "hi")
        found = await asyncio.gather(
            *(_of_current(store, "c1") for store in (first, second) for _ in range(3))
        )
        assert set(found) == {found[0]}

    async def test_a_chat_that_is_a_session_does_not_have_the_lane(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        chat = await _of_current(store, "c1")
        assert await store.chat_at("c1") is None
        assert await store.archive_chat(ALICE, chat.number, archived=True)
        assert await store.archived_lanes() == []

    async def test_there_is_no_chat_of_a_session_that_is_not_there(self, store: Store) -> None:
        with pytest.raises(StoreError):
            await store.chat_of_session(ALICE, "nothing")
        assert await store.chats(ALICE) == []

    async def test_a_chat_goes_with_its_session_and_its_number_is_not_used_again(
        self, store: Store
    ) -> None:
        await converse(store, "hello", "hi")
        for person in (ALICE, BOB):
            chat = await _of_current(store, "c1", person=person)
        assert chat.session is not None
        assert await store.delete_session(chat.session)
        assert await store.chats(ALICE) == await store.chats(BOB) == []
        assert (await _of_current(store, "c1")).number == 2

    async def test_a_room_stays_when_the_session_it_began_with_is_deleted(
        self, store: Store
    ) -> None:
        room = await _room(store, "room")
        assert room.session is not None
        within = await store.chat_of_session(ALICE, room.session)
        assert await store.delete_session(room.session)
        [left] = await store.chats(ALICE)
        assert (left.number, left.lane, left.session) == (room.number, "room", None)
        assert left.number != within.number
        assert await store.chat_at("room") == left

    # ── names and archives ──

    async def test_a_name_is_for_show_only(self, open_store: OpenStore) -> None:
        store = await open_store()
        room = await _room(store, "room")
        for name in ("Plans", "Tr\ud83dps"):
            assert await store.name_chat(ALICE, 1, name)
        assert not await store.name_chat(ALICE, 2, "x")
        assert not await store.name_chat(BOB, 1, "x")
        await store.close()
        again = await open_store()
        named = await again.chat_at("room")
        assert named is not None and named.name == "Tr�ps"
        assert (named.number, named.session) == (room.number, room.session)
        assert await again.name_chat(ALICE, 1, None)
        assert await again.chat_at("room") == room

    async def test_an_archived_room_is_put_away_until_it_is_taken_up(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        for lane in ("one", "two"):
            await _room(store, lane)
        waiting = await store.open_chat(ALICE, key="no room yet")
        for number in (1, waiting.number):
            assert await store.archive_chat(ALICE, number, archived=True)
        assert not await store.archive_chat(ALICE, 1, archived=True)
        assert not await store.archive_chat(BOB, 1, archived=True)
        assert not await store.archive_chat(ALICE, 2, archived=False)
        await store.close()
        again = await open_store()
        assert await again.archived_lanes() == ["one"]
        assert [chat.archived for chat in await again.chats(ALICE)] == [True, False, True]
        assert await again.archive_chat(ALICE, 1, archived=False)
        assert await again.archived_lanes() == []

    async def test_a_room_that_moves_stays_archived(self, store: Store) -> None:
        await _room(store, "old")
        await store.archive_chat(ALICE, 1, archived=True)
        await store.place_chat(ALICE, 1, a_source("new"), "new")
        assert await store.archived_lanes() == ["new"]

    # ── another namespace ──

    async def test_chats_follow_their_lane(self, store: Store) -> None:
        room = await _room(store, MAIN)
        within = await _of_current(store, MAIN, person=BOB)
        await store.archive_chat(ALICE, room.number, archived=True)
        waiting = await store.open_chat(BOB, key="no room yet")
        assert await store.adopt("coder") == 1
        assert await store.chat_at(MAIN) is None
        renamed = await store.chat_at(CODER)
        assert renamed is not None
        assert (renamed.number, renamed.session) == (room.number, room.session)
        assert await store.archived_lanes() == [CODER]
        assert [chat.lane for chat in await store.chats(BOB)] == [CODER, None]
        assert await store.unplaced_chats() == [waiting]
        assert await store.chat_of_session(BOB, within.session or "") == (await store.chats(BOB))[0]

    @pytest.mark.parametrize("in_use", [MAIN, CODER], ids=["main", "coder"])
    async def test_where_two_rooms_become_one_the_chat_in_use_has_it(
        self, store: Store, in_use: str
    ) -> None:
        rooms = {lane: await _room(store, lane) for lane in (MAIN, CODER)}
        for lane, room in rooms.items():
            if lane != in_use:
                await store.archive_chat(ALICE, room.number, archived=True)
        await store.adopt("coder")
        found = await store.chat_at(CODER)
        assert found is not None and found.number == rooms[in_use].number
        assert await store.archived_lanes() == []
        await store.archive_chat(ALICE, found.number, archived=True)
        assert await store.archived_lanes() == [CODER]
