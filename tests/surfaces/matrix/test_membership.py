from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.config.surfaces import MatrixSettings
from parley.protocol import SessionSource
from parley.surfaces.matrix.membership import (
    CameIn,
    Change,
    ChatLeft,
    Deserted,
    Membership,
    Renamed,
    WentOut,
)
from parley.surfaces.matrix.rooms import shown_name
from parley.surfaces.matrix.spaces import Spaces
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.bot import Bot, a_bot, a_chat
from tests.surfaces.matrix.person import Person


class Watch:
    """Syncs and tells the changes, as the surface does."""

    def __init__(self, bot: Bot) -> None:
        self.bot = bot
        self.membership = Membership(bot.connection, bot.door, bot.rooms)

    async def changes(self) -> list[Change]:
        rooms = await self.bot.sync()
        events = [
            (room_id, event)
            for room_id, told in rooms.get("join", {}).items()
            for event in told["timeline"]["events"]
        ]
        left = {
            room_id: told["timeline"]["events"][-1]
            for room_id, told in rooms.get("leave", {}).items()
        }
        return await self.membership.take(events, left)

    async def until(self, kind: type[Any]) -> list[Change]:
        found: list[Change] = []
        for _ in range(200):
            found += await self.changes()
            if any(isinstance(each, kind) for each in found):
                return found
            await self.bot.connection.call("GET", "/v3/joined_rooms")
        raise AssertionError(f"no {kind.__name__}: {found}")


async def join(bot: Bot, room: str) -> None:
    await bot.connection.call("POST", f"/v3/join/{room}", {})
    bot.rooms.expect(room)


async def test_after_a_kick_nothing_is_sent_and_after_the_return_all_that_waited(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse, name="Ann") as ann:
        watch = Watch(bot)
        room = await ann.create_room(invite=[bot.user_id], encrypted=True)
        assert bot.rooms.is_out(room)
        await join(bot, room)
        assert not bot.rooms.is_out(room)
        assert CameIn(room) in await watch.until(CameIn)
        await bot.rooms.settle(room, ann.user_id)
        await bot.rooms.keep_encrypted()
        assert bot.door.marks_kept[f"matrix:encrypted:{room}"] == "yes"

        await ann.kick(room, bot.user_id)
        assert await watch.until(WentOut) == [WentOut(room, "kicked", ann.user_id)]
        assert bot.rooms.is_out(room)
        assert bot.rooms.facts(room) is None
        assert bot.connection.is_encrypted(room)  # it is not forgotten

        bot.door.came_back.clear()
        await ann.invite(room, bot.user_id)
        await join(bot, room)
        assert CameIn(room) in await watch.until(CameIn)
        expected = SessionSource(
            "matrix", room, chat_type="dm", user_id=ann.user_id, user_name="Ann"
        )
        assert bot.door.came_back == [expected]

        ban = {"user_id": bot.user_id, "reason": "enough"}
        await ann.call("POST", f"/v3/rooms/{room}/ban", ban)
        assert await watch.until(WentOut) == [WentOut(room, "banned", ann.user_id)]


async def test_being_in_a_room_when_it_starts_is_no_news(synapse: Synapse, tmp_path: Path) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as ann:
        room = await ann.create_room(invite=[bot.user_id])
        await join(bot, room)
        await bot.sync()
        membership = Membership(bot.connection, bot.door, bot.rooms)

        assert await membership.joined(room, [], first=True) == []
        assert await membership.joined(room, []) == []
        assert bot.door.came_back == []


async def test_who_leaves_their_chat_is_told_of_and_we_stay_there_to_ask_them_in_again(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as ann:
        watch = Watch(bot)
        spaces = Spaces(bot.connection, bot.door, bot.rooms, MatrixSettings(), "default")
        source = SessionSource("matrix", user_id=ann.user_id)
        opened = await spaces.open_room(source, a_chat(ann.user_id))
        await ann.wait_for_invite()
        await ann.join(opened.chat_id)
        await watch.until(CameIn)

        await ann.leave(opened.chat_id)

        left = ChatLeft(opened.chat_id, opened.chat_id, ann.user_id)
        assert left in await watch.until(ChatLeft)
        assert opened.chat_id in await bot.joined_rooms()


async def test_a_room_with_nobody_else_is_left_and_forgotten(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as ann:
        watch = Watch(bot)
        room = await ann.create_room(invite=[bot.user_id])
        await join(bot, room)
        await watch.until(CameIn)

        await ann.leave(room)

        assert Deserted(room) in await watch.until(Deserted)
        assert await bot.joined_rooms() == []
        assert bot.rooms.is_out(room)


async def test_names_are_followed_and_made_fit_to_be_shown(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse, name="Ann") as ann:
        watch = Watch(bot)
        room = await ann.create_room(invite=[bot.user_id])
        await join(bot, room)
        await watch.until(CameIn)
        path = f"/v3/profile/{ann.user_id}/displayname"

        await ann.call("PUT", path, {"displayname": "An\u202ena\n\x1b[2J of " + "x" * 200})

        renamed = next(each for each in await watch.until(Renamed) if isinstance(each, Renamed))
        assert renamed.name == bot.rooms.name_of(room, ann.user_id)
        assert renamed.name is not None
        assert renamed.name.isprintable()
        assert len(renamed.name) <= 80
        assert renamed.name.startswith("An na [2J of x")


@pytest.mark.parametrize("name", [None, 7, "", " \n", "\u202e\u200b", {}])
def test_what_is_no_name_is_none(name: object) -> None:
    assert shown_name(name) is None


async def test_a_third_person_makes_it_a_group_and_the_conversation_stays_whose_it_was(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with (
        a_bot(synapse, tmp_path) as bot,
        Person.on(synapse) as ann,
        Person.on(synapse) as ben,
    ):
        watch = Watch(bot)
        room = await ann.create_room(invite=[bot.user_id])
        await join(bot, room)
        await watch.until(CameIn)
        await bot.rooms.settle(room, ann.user_id)
        before = bot.rooms.source(room, ann.user_id)
        facts = bot.rooms.facts(room)
        assert facts is not None
        assert not facts.is_crowded

        await ann.invite(room, ben.user_id)
        await bot.sync(seconds=5)
        facts = bot.rooms.facts(room)
        assert facts is not None
        assert facts.is_crowded  # they are only invited, and could read it later

        await ben.join(room)
        await watch.until(Renamed)
        await bot.rooms.settle(room, ben.user_id)
        assert bot.rooms.source(room, ann.user_id) == before
        assert bot.rooms.source(room, ben.user_id).chat_type == "group"

        await ben.leave(room)
        await bot.sync(seconds=5)
        facts = bot.rooms.facts(room)
        assert facts is not None
        assert not facts.is_crowded

        group = await ann.create_room(invite=[bot.user_id, ben.user_id])
        await join(bot, group)
        await watch.until(CameIn)
        await bot.rooms.settle(group, ann.user_id)
        await ann.kick(group, ben.user_id)
        await bot.sync(seconds=5)
        await bot.rooms.settle(group, ann.user_id)
        assert bot.rooms.source(group, ann.user_id).chat_type == "group"  # as it began


async def test_what_was_encrypted_once_is_so_after_a_restart_whatever_the_server_says(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path / "a") as bot:
        await bot.rooms.keep_encrypted("!once")
        door = bot.door
    async with a_bot(synapse, tmp_path / "b", door=door) as bot:
        assert bot.connection.is_encrypted("!once")
