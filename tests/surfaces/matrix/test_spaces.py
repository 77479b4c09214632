from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from parley.config.surfaces import MatrixSettings
from parley.protocol import SessionSource
from parley.surfaces.matrix.connection import MatrixFault
from parley.surfaces.matrix.room_state import beginning, read_state
from parley.surfaces.matrix.spaces import Spaces
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.bot import Bot, a_bot, a_chat
from tests.surfaces.matrix.door import Door
from tests.surfaces.matrix.person import Person
from tests.waiting import until


def spaces_of(bot: Bot, **settings: Any) -> Spaces:
    return Spaces(bot.connection, bot.door, bot.rooms, MatrixSettings(**settings), "default")


def said_by(person: Person, name: str = "Ann") -> SessionSource:
    return SessionSource("matrix", chat_id="!dm", user_id=person.user_id, user_name=name)


async def test_a_person_gets_one_space_and_a_room_for_each_chat(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse, name="Ann") as ann:
        spaces, source = spaces_of(bot), said_by(ann)

        first, again, second = await asyncio.gather(
            spaces.open_room(source, a_chat(ann.user_id)),
            spaces.open_room(source, a_chat(ann.user_id)),
            spaces.open_room(source, a_chat(ann.user_id, 2, name="Tax")),
        )

        assert first == again
        assert first.chat_id != second.chat_id
        assert (first.chat_type, first.user_id, first.chat_name) == ("dm", ann.user_id, "Chat 1")
        space = bot.door.marks_kept[f"matrix:space:{ann.user_id}"]
        assert set(await bot.joined_rooms()) == {space, first.chat_id, second.chat_id}
        for room in (space, first.chat_id, second.chat_id):
            await ann.wait_for_invite(apart_from=[each for each in ann.invites if each != room])
            await ann.join(room)
        assert ann.client.rooms[space].room_type == "m.space"
        assert ann.client.rooms[space].name == "Parley · Ann"
        assert ann.client.rooms[space].children == {first.chat_id, second.chat_id}
        room = ann.client.rooms[second.chat_id]
        assert (room.name, room.encrypted, room.parents) == ("Tax", True, {space})
        assert (room.join_rule, room.history_visibility) == ("invite", "invited")
        assert bot.connection.is_encrypted(first.chat_id)  # before any sync has said so

        await ann.set_state(first.chat_id, "m.room.name", {"name": "Mine"})  # they may
        await ann.set_state(space, "m.space.child", {}, first.chat_id)
        await bot.sync()
        facts = bot.rooms.facts(first.chat_id)
        assert facts is not None
        assert (facts.is_chat, facts.person, facts.is_crowded) == (True, ann.user_id, False)


async def test_a_room_that_was_made_and_not_written_down_is_found_again(
    synapse: Synapse, tmp_path: Path
) -> None:
    class Forgetful(Door):
        """As if the process ended before it could write this down."""

        lost = ""

        async def put_marks(self, marks: Mapping[str, str | None]) -> None:
            if any(
                self.lost and name.startswith(self.lost) and room for name, room in marks.items()
            ):
                raise ConnectionAbortedError
            await super().put_marks(marks)

    account = await asyncio.to_thread(synapse.register)
    door = Forgetful()
    async with Person.on(synapse) as ann:
        for lost in ("matrix:space:", "matrix:chat:"):
            door.lost = lost
            async with a_bot(synapse, tmp_path, account=account, door=door) as bot:
                with pytest.raises(ConnectionAbortedError):
                    await spaces_of(bot).open_room(said_by(ann), a_chat(ann.user_id))
        door.lost = ""
        await until(lambda: len(ann.invites) == 2)
        for room in list(ann.invites):
            await ann.leave(room)  # they do not wait for us
        async with a_bot(synapse, tmp_path, account=account, door=door) as bot:
            made = set(await bot.joined_rooms())
            assert len(made) == 2
            chat = (made - {door.marks_kept[f"matrix:space:{ann.user_id}"]}).pop()
            while (known := bot.rooms.facts(chat)) is None or known.members > 1:
                await bot.sync()
            opened = await spaces_of(bot).open_room(said_by(ann), a_chat(ann.user_id))
            assert opened.chat_id in made
            assert set(await bot.joined_rooms()) == made
            space = door.marks_kept[f"matrix:space:{ann.user_id}"]
            child = await read_state(bot.connection, space, "m.space.child", opened.chat_id)
            assert child
            assert bot.connection.is_encrypted(opened.chat_id)
        async with a_bot(synapse, tmp_path, account=account, door=Door()) as bot:
            # Even our own records may be new.
            assert await spaces_of(bot).open_room(said_by(ann), a_chat(ann.user_id)) == opened
            assert set(await bot.joined_rooms()) == made


async def test_a_room_that_a_stranger_made_is_never_taken_for_a_chat(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with (
        a_bot(synapse, tmp_path) as bot,
        Person.on(synapse) as ann,
        Person.on(synapse) as eve,
    ):
        marker = {"person": ann.user_id, "number": 1, "profile": "default"}
        trap = await eve.create_room(
            invite=[bot.user_id, ann.user_id],
            direct=True,
            creation_content={"org.parley.chat": marker},
        )
        await bot.connection.call("POST", f"/v3/join/{trap}", {})
        bot.door.marks_kept[f"matrix:chat:{ann.user_id}:1"] = ""
        await bot.sync()

        opened = await spaces_of(bot).open_room(said_by(ann), a_chat(ann.user_id))

        assert opened.chat_id != trap
        first = await beginning(bot.connection, opened.chat_id)
        assert first is not None
        assert first.creator == bot.user_id


async def test_renaming_and_archiving_show_and_who_left_is_asked_in_again(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as ann:
        spaces, source = spaces_of(bot, encrypt=False), said_by(ann)
        opened = await spaces.open_room(source, a_chat(ann.user_id))
        room = opened.chat_id
        space = bot.door.marks_kept[f"matrix:space:{ann.user_id}"]
        connection = bot.connection

        async def shown() -> tuple[str, bool]:
            name = await read_state(connection, room, "m.room.name")
            child = await read_state(connection, space, "m.space.child", room)
            return (name or {})["name"], bool(child)

        await spaces.name_room(a_chat(ann.user_id, name="Tax\u202e\n2026", source=opened))
        assert await shown() == ("Tax 2026", True)
        await spaces.archive_room(a_chat(ann.user_id, name="Tax", source=opened, archived=True))
        assert await shown() == ("Tax (archived)", False)
        assert room in await bot.joined_rooms()
        await ann.join(room)
        await ann.leave(room)
        ann.invites.clear()
        await spaces.archive_room(a_chat(ann.user_id, name="Tax", source=opened))
        assert await shown() == ("Tax", True)
        await ann.wait_for_invite(apart_from=[space])

        await ann.join(room)
        await ann.leave(room)
        await ann.leave(space)
        assert await spaces.open_room(source, a_chat(ann.user_id, source=opened)) == opened
        for each in (space, room):
            await ann.join(each)
        assert set(await bot.joined_rooms()) == {space, room}


async def test_without_spaces_a_chat_is_simply_a_room(synapse: Synapse, tmp_path: Path) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as ann:
        spaces = spaces_of(bot, spaces=False, encrypt=False)

        opened = await spaces.open_room(said_by(ann), a_chat(ann.user_id))
        await spaces.archive_room(a_chat(ann.user_id, source=opened, archived=True))

        assert await bot.joined_rooms() == [opened.chat_id]
        assert not bot.connection.is_encrypted(opened.chat_id)


async def test_a_room_that_we_were_put_out_of_is_made_anew(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as ann:
        spaces = spaces_of(bot, encrypt=False)
        opened = await spaces.open_room(said_by(ann), a_chat(ann.user_id))
        await bot.connection.call("POST", f"/v3/rooms/{opened.chat_id}/leave", {})

        anew = await spaces.open_room(said_by(ann), a_chat(ann.user_id, source=opened))

        assert anew.chat_id != opened.chat_id
        assert len(await bot.joined_rooms()) == 2


async def test_a_homeserver_that_is_away_is_said_so_and_nothing_is_made_twice(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with a_bot(synapse, tmp_path) as bot, Person.on(synapse) as ann:
        spaces = spaces_of(bot)
        address, bot.connection.nio.homeserver = bot.connection.nio.homeserver, "http://127.0.0.1:9"
        with pytest.raises(MatrixFault, match="cannot be reached"):
            await spaces.open_room(said_by(ann), a_chat(ann.user_id))
        bot.connection.nio.homeserver = address

        await spaces.open_room(said_by(ann), a_chat(ann.user_id))

        assert len(await bot.joined_rooms()) == 2
