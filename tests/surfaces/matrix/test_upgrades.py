from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config.surfaces import MatrixSettings
from parley.protocol import SessionSource
from parley.surfaces.matrix.room_names import RoomNames
from parley.surfaces.matrix.room_state import read_state
from parley.surfaces.matrix.spaces import Spaces
from parley.surfaces.matrix.upgrades import Moved, Upgrades
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.bot import Bot, a_bot, a_chat
from tests.surfaces.matrix.door import Door
from tests.surfaces.matrix.person import Person


class Watch:
    """Syncs and tells of tombstones, as the surface does."""

    def __init__(self, bot: Bot) -> None:
        self.bot = bot
        self.moves: list[Moved] = []
        self.upgrades = Upgrades(bot.connection, bot.door, bot.rooms, self._moved)

    async def _moved(self, moved: Moved) -> None:
        self.moves.append(moved)

    async def see_tombstone(self) -> None:
        """Sync until one comes, and see what becomes of it."""
        seen = False
        while not seen:
            rooms = await self.bot.sync(seconds=5)
            for room_id, told in rooms.get("join", {}).items():
                for event in told["timeline"]["events"]:
                    if event["type"] == "m.room.tombstone":
                        new = event["content"]["replacement_room"]
                        await self.upgrades.take(room_id, new, event["sender"])
                        await self.upgrades.settled(new)
                        seen = True


async def shared_room(bot: Bot, person: Person, **more: Any) -> str:
    room = await person.create_room(invite=[bot.user_id], **more)
    await bot.connection.call("POST", f"/v3/join/{room}", {})
    while bot.rooms.facts(room) is None:
        await bot.sync(seconds=5)
    await bot.rooms.settle(room, person.user_id)
    return room


async def upgrade(person: Person, room: str, version: str = "11") -> str:
    told = await person.call("POST", f"/v3/rooms/{room}/upgrade", {"new_version": version})
    return str(told["replacement_room"])


async def test_a_conversation_goes_on_through_a_chain_of_upgrades_and_a_restart(
    synapse: Synapse, tmp_path: Path
) -> None:
    account = await asyncio.to_thread(synapse.register)
    public = {"preset": "public_chat", "room_version": "10"}
    async with Person.on(synapse) as ann:
        async with a_bot(synapse, tmp_path, account=account) as bot:
            door, watch = bot.door, Watch(bot)
            first = await shared_room(bot, ann, encrypted=True, **public)
            before = bot.rooms.source(first, ann.user_id)
            second = await upgrade(ann, first)
            await watch.see_tombstone()
            third = await upgrade(ann, second, "12")
            while bot.rooms.facts(second) is None or not watch.moves[1:]:
                await watch.see_tombstone()

            assert watch.moves == [Moved(first, first, second), Moved(first, second, third)]
            await bot.sync(seconds=5)
            assert bot.rooms.source(third, ann.user_id) == before
            assert bot.connection.is_encrypted(third)
            assert set(await door.marks("matrix:encrypted:")) >= {f"matrix:encrypted:{third}"}
            assert not await door.marks("matrix:upgrade:")

        async with a_bot(synapse, tmp_path, account=account, door=door) as bot:
            names, watch = bot.rooms.names, Watch(bot)
            assert [names.origin_of(room) for room in (first, second, third)] == [first] * 3
            assert [names.current_of(room) for room in (first, second, third)] == [third] * 3
            # The full state of a room tells of its old tombstone again.
            await watch.upgrades.take(first, second, ann.user_id)
            await watch.upgrades.take(second, third, ann.user_id)
            await watch.upgrades.idle()
            assert watch.moves == []


async def test_an_upgrade_of_a_private_room_goes_on_when_we_are_asked_in(
    synapse: Synapse, tmp_path: Path
) -> None:
    account = await asyncio.to_thread(synapse.register)
    async with Person.on(synapse) as ann:
        async with a_bot(synapse, tmp_path, account=account) as bot:
            watch = Watch(bot)
            old = await shared_room(bot, ann)
            new = await upgrade(ann, old)
            await watch.see_tombstone()
            assert watch.moves == []
            assert watch.upgrades.faults == {}
            door = bot.door
        async with a_bot(synapse, tmp_path, account=account, door=door) as bot:
            watch = Watch(bot)
            await watch.upgrades.resume()
            await watch.upgrades.idle()
            await ann.invite(new, bot.user_id)
            await bot.connection.call("POST", f"/v3/join/{new}", {})

            await watch.upgrades.came_in(new)
            await watch.upgrades.idle()

            assert watch.moves == [Moved(old, old, new)]


async def test_a_chat_that_its_person_upgrades_is_shown_in_their_space(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as ann:
        settings = MatrixSettings(encrypt=False)
        spaces = Spaces(bot.connection, bot.door, bot.rooms, settings, "default")
        watch = Watch(bot)
        source = SessionSource("matrix", user_id=ann.user_id)
        opened = await spaces.open_room(source, a_chat(ann.user_id))
        await ann.join(opened.chat_id)
        while bot.rooms.facts(opened.chat_id) is None:
            await bot.sync(seconds=5)
        new = await upgrade(ann, opened.chat_id)
        await watch.see_tombstone()
        await ann.invite(new, bot.user_id)
        await bot.connection.call("POST", f"/v3/join/{new}", {})
        await watch.upgrades.came_in(new)
        await watch.upgrades.idle()
        chat = a_chat(ann.user_id, source=opened)

        await spaces.moved(chat, opened.chat_id)

        space = bot.door.marks_kept[f"matrix:space:{ann.user_id}"]
        assert await read_state(bot.connection, space, "m.space.child", new)
        assert not await read_state(bot.connection, space, "m.space.child", opened.chat_id)
        assert await spaces.open_room(source, chat) == opened  # by its first name, as ever
        await bot.sync()
        facts = bot.rooms.facts(new)
        assert facts is not None
        assert (facts.is_chat, facts.person, facts.origin) == (True, ann.user_id, opened.chat_id)
        assert not bot.rooms.is_ours(opened.chat_id)


@pytest.mark.parametrize("trick", ["stranger", "no-predecessor", "plain", "message"])
async def test_a_tombstone_that_is_not_believed_moves_nothing(
    synapse: Synapse, tmp_path: Path, trick: str
) -> None:
    async with (
        a_bot(synapse, tmp_path) as bot,
        Person.on(synapse) as ann,
        Person.on(synapse) as eve,
    ):
        watch = Watch(bot)
        old = await shared_room(bot, ann, encrypted=trick == "plain", preset="public_chat")
        before = {"predecessor": {"room_id": old, "event_id": "$x"}}
        maker, more = ann, dict[str, Any](creation_content=before)
        if trick == "stranger":
            maker = eve
        elif trick == "no-predecessor":
            more = {}
        new = await maker.create_room(preset="public_chat", **more)
        tombstone = {"body": "gone", "replacement_room": new}
        if trick == "message":
            # What is encrypted can say that it is of any kind.
            await watch.upgrades.take(old, new, eve.user_id)
        else:
            await ann.set_state(old, "m.room.tombstone", tombstone)
            await watch.see_tombstone()
        await watch.upgrades.idle()

        assert watch.moves == []
        assert bot.rooms.names.current_of(old) == old
        assert old in watch.upgrades.faults
        assert await bot.joined_rooms() == [old]
        fresh = Watch(bot)
        await fresh.upgrades.take(old, new, ann.user_id if trick != "message" else eve.user_id)
        await fresh.upgrades.resume()
        await fresh.upgrades.idle()
        assert fresh.upgrades.faults == {}  # it was decided before


async def test_a_conversation_does_not_follow_into_a_room_without_its_person(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with (
        a_bot(synapse, tmp_path) as bot,
        Person.on(synapse) as ann,
        Person.on(synapse) as eve,
    ):
        watch = Watch(bot)
        old = await shared_room(bot, ann, preset="public_chat", room_version="11")
        await eve.join(old)
        levels = await ann.call("GET", f"/v3/rooms/{old}/state/m.room.power_levels")
        levels["users"][eve.user_id] = 100
        await ann.set_state(old, "m.room.power_levels", levels)
        await upgrade(eve, old)

        await watch.see_tombstone()
        await watch.upgrades.idle()

        assert watch.moves == []
        assert "person" in watch.upgrades.faults[old]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12))
async def test_every_room_of_a_chain_names_the_same_beginning_and_end(
    steps: list[tuple[int, bool]],
) -> None:
    door = Door()
    names = RoomNames(door)
    chains = {f"!{number}": [f"!{number}"] for number in range(6)}
    for count, (number, restart) in enumerate(steps):
        chain = chains[f"!{number}"]
        await names.move(chain[-1], f"!{number}-{count}", done={})
        chain.append(f"!{number}-{count}")
        if restart:
            names = RoomNames(door)
            await names.load()
    for origin, chain in chains.items():
        assert {names.origin_of(room) for room in chain} == {origin}
        assert {names.current_of(room) for room in chain} == {chain[-1]}
