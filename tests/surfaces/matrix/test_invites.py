from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from parley.config.surfaces import MatrixSettings
from parley.protocol import SessionSource
from parley.surfaces.matrix.allowed import Allowed
from parley.surfaces.matrix.invites import Invites, read_invite
from parley.surfaces.matrix.spaces import Spaces
from tests.servers.synapse import Synapse, running_synapse
from tests.surfaces.matrix.bot import Bot, a_bot, a_chat
from tests.surfaces.matrix.person import Person


def invites_of(bot: Bot, *allow: str) -> Invites:
    return Invites(bot.connection, bot.door, bot.rooms, Allowed(allow, []))


async def take_all(bot: Bot, invites: Invites, *, wait: bool = True) -> list[str]:
    """Sync until someone asks us in; returns the rooms."""
    found: list[str] = []
    while not found:
        rooms = await bot.sync(seconds=5)
        for room_id, told in rooms.get("invite", {}).items():
            invite = read_invite(room_id, bot.user_id, told["invite_state"]["events"])
            assert invite is not None
            await invites.take(invite)
            found.append(room_id)
    if wait:
        await invites.idle()
    return found


async def test_who_may_speak_is_followed_and_welcomed_once_for_each_time_they_ask(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse, name="Ann") as ann:
        invites = invites_of(bot, ann.user_id)
        room = await ann.create_dm(bot.user_id, name="Us")
        assert await take_all(bot, invites) == [room]

        assert await bot.joined_rooms() == [room]
        source, event_id = bot.door.welcomed[0]
        assert (source.chat_id, source.chat_type, source.user_id) == (room, "dm", ann.user_id)
        assert source.user_name == "Ann"
        assert event_id.startswith("$")
        assert bot.door.marks_kept == {f"matrix:kind:{room}": ann.user_id}

        await bot.connection.call("POST", f"/v3/rooms/{room}/leave", {})
        await bot.sync()
        await ann.invite(room, bot.user_id)
        assert await take_all(bot, invites) == [room]
        assert await bot.joined_rooms() == [room]
        assert [each.chat_id for each, _ in bot.door.welcomed] == [room, room]
        assert len({event for _, event in bot.door.welcomed}) == 2

        other = await ann.create_room(invite=[bot.user_id])  # for two, though it does not say so
        assert await take_all(bot, invites) == [other]
        assert bot.door.welcomed[-1][0].chat_type == "dm"


async def test_in_a_group_or_a_space_nobody_is_welcomed(synapse: Synapse, tmp_path: Path) -> None:
    async with (
        a_bot(synapse, tmp_path) as bot,
        Person.on(synapse) as ann,
        Person.on(synapse) as ben,
    ):
        invites = invites_of(bot, "*:localhost")
        group = await ann.create_room(invite=[ben.user_id, bot.user_id])  # Ben has not joined yet
        await take_all(bot, invites)
        space = await ann.create_room(
            invite=[bot.user_id], creation_content={"type": "m.space"}, direct=True
        )
        await take_all(bot, invites)

        assert set(await bot.joined_rooms()) == {group, space}
        assert bot.door.welcomed == []
        await bot.sync()
        assert bot.rooms.source(group, ann.user_id).chat_type == "group"


async def test_a_stranger_is_turned_down_with_one_line_that_says_what_to_do(
    synapse: Synapse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as eve:
        invites = invites_of(bot)
        with caplog.at_level(logging.INFO, "parley.matrix"):
            for _ in range(2):
                await eve.create_dm(bot.user_id)
                await take_all(bot, invites)

        assert await bot.joined_rooms() == []
        assert bot.door.welcomed == []
        assert bot.door.marks_kept == {}
        assert "invite" not in await bot.sync()  # it does not hang on there either
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 1
        assert f"`parley config set surfaces.matrix.allow {eve.user_id}`" in told[0]


async def test_an_invitation_outlives_a_restart_and_a_server_that_is_away(
    synapse: Synapse, tmp_path: Path
) -> None:
    account = await asyncio.to_thread(synapse.register)
    async with Person.on(synapse) as ann:
        async with a_bot(synapse, tmp_path, account=account) as bot:
            door = bot.door
            invites = invites_of(bot, "*")
            room = await ann.create_dm(bot.user_id)
            rooms = await bot.sync(seconds=5)
            events = rooms["invite"][room]["invite_state"]["events"]
            invite = read_invite(room, bot.user_id, events)
            assert invite is not None
            bot.connection.nio.homeserver = "http://127.0.0.1:9"
            await invites.take(invite)
            await invites.take(invite)
            await invites.close()
            assert door.welcomed == []
            assert list(door.marks_kept) == [f"matrix:invite:{room}"]

        async with a_bot(synapse, tmp_path, account=account, door=door) as bot:
            refusing = invites_of(bot)  # in the meantime they may not speak any more
            kept = dict(door.marks_kept)
            await refusing.resume()
            await refusing.idle()
            assert await bot.joined_rooms() == []
            door.marks_kept.update(kept)

            address = bot.connection.nio.homeserver
            bot.connection.nio.homeserver = "http://127.0.0.1:9"
            invites = invites_of(bot, "*")
            await invites.resume()
            await asyncio.sleep(0)
            bot.connection.nio.homeserver = address
            await invites.idle()
            assert await bot.joined_rooms() == [room]
            assert [source.chat_id for source, _ in door.welcomed] == [room]
            assert not await door.marks("matrix:invite:")

            door.marks_kept.update(kept)  # as if the run had ended just before this was removed
            await invites.resume()
            await invites.idle()
            assert [source.chat_id for source, _ in door.welcomed] == [room]
            assert not await door.marks("matrix:invite:")


async def test_an_invitation_to_a_room_that_is_gone_is_given_up(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as ann:
        invites = invites_of(bot, "*")
        room = await ann.create_room(invite=[bot.user_id])
        rooms = await bot.sync(seconds=5)
        invite = read_invite(room, bot.user_id, rooms["invite"][room]["invite_state"]["events"])
        assert invite is not None
        await ann.kick(room, bot.user_id)

        await invites.take(invite)
        await invites.idle()

        assert bot.door.marks_kept == {}
        assert bot.door.welcomed == []

        bot.connection.nio.homeserver = "http://127.0.0.1:9"
        await invites.take(invite)
        await invites.withdrawn(room)
        assert bot.door.marks_kept == {}
        await invites.idle()


async def test_many_invitations_at_once_are_joined_a_few_at_a_time(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as ann:
        invites = invites_of(bot, "*")
        rooms = [await ann.create_dm(bot.user_id, encrypted=False) for _ in range(8)]
        call, running, most = bot.connection.call, 0, 0

        async def counted(*args: Any, **more: Any) -> dict[str, Any]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                return await call(*args, **more)
            finally:
                running -= 1

        asked: dict[str, Any] = {}
        while set(asked) != set(rooms):
            asked |= (await bot.sync(seconds=5)).get("invite", {})
        bot.connection.call = counted  # type: ignore[method-assign]
        for room_id, told in asked.items():
            invite = read_invite(room_id, bot.user_id, told["invite_state"]["events"])
            assert invite is not None
            await invites.take(invite)
        await invites.idle()

        assert set(await bot.joined_rooms()) == set(rooms)
        assert len(bot.door.welcomed) == len(rooms)
        assert most <= 3


async def test_a_server_that_limits_joins_and_rooms_is_waited_for(tmp_path: Path) -> None:
    slow = {"per_second": 4, "burst_count": 1}
    limits = {"rc_joins": {"local": slow, "remote": slow}, "rc_room_creation": slow}
    with running_synapse(extra=limits) as strict:
        async with a_bot(strict, tmp_path) as bot, Person.on(strict) as ann:
            invites = invites_of(bot, "*")
            rooms: list[str] = []
            while len(rooms) < 4:
                try:
                    rooms.append(await ann.create_room(invite=[bot.user_id]))
                except RuntimeError:
                    await asyncio.sleep(0.1)
            asked: set[str] = set()
            while asked != set(rooms):
                asked.update(await take_all(bot, invites, wait=False))
            await invites.idle()

            assert set(await bot.joined_rooms()) == set(rooms)
            assert len(bot.door.welcomed) == len(rooms)

            settings = MatrixSettings(encrypt=False)
            spaces = Spaces(bot.connection, bot.door, bot.rooms, settings, "default")
            source = SessionSource("matrix", user_id=ann.user_id)
            for number in (1, 2, 3):
                await spaces.open_room(source, a_chat(ann.user_id, number))
            assert len(await bot.joined_rooms()) == len(rooms) + 4


def test_what_is_no_invitation_for_us_is_none() -> None:
    us, member = "@bot:x", {"type": "m.room.member", "state_key": "@bot:x"}
    strange: list[list[dict[str, Any]]] = [
        [],
        [{}],
        [{"type": "m.room.member", "state_key": "@else:x", "content": {"membership": "invite"}}],
        [{**member, "sender": "@ann:x", "content": {"membership": "join"}}],
        [{**member, "sender": 7, "content": {"membership": "invite"}}],
        [{**member, "sender": "@ann:x", "content": "invite"}],
    ]
    assert [read_invite("!r", us, events) for events in strange] == [None] * len(strange)
    asked = {**member, "sender": "@ann:x", "content": {"membership": "invite", "is_direct": "yes"}}
    invite = read_invite("!r", us, [asked])
    assert invite is not None
    assert not invite.direct
