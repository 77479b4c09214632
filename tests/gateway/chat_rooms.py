"""A real surface where each chat is a room, and the server that keeps those rooms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from parley.protocol import ParleyError, SessionSource
from parley.storage.people import Chat
from parley.surfaces.base import ChatRooms
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.gateway.room import Place, Room
from tests.waiting import until

__all__ = ["RoomServer", "Roomy", "in_room", "open_roomy"]


@dataclass
class RoomServer:
    """Outlives every gateway. `before`, when set, may raise what a server would."""

    made: dict[tuple[str, int], str] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    names: dict[str, str | None] = field(default_factory=dict)
    archived: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    before: Callable[[str], None] | None = None

    first_in_place = False

    async def open_room(self, source: SessionSource, chat: Chat) -> SessionSource:
        self._ask("open")
        room = self.made.get((chat.person, chat.number))
        if room is None:
            room = f"!{len(self.created) + 1}"
            self.created.append(room)
            await asyncio.sleep(0.01)  # as a server takes its time
            self.made[chat.person, chat.number] = room
        self.names.setdefault(room, chat.name)
        return SessionSource(
            "desk",
            chat_id=room,
            user_id=source.user_id,
            user_name=source.user_name,
            chat_name=f"room {room}",
        )

    async def name_room(self, chat: Chat) -> None:
        self._ask("name")
        self.names[self.made[chat.person, chat.number]] = chat.name

    async def archive_room(self, chat: Chat) -> None:
        self._ask("archive")
        room = self.made[chat.person, chat.number]
        self.archived.add(room) if chat.archived else self.archived.discard(room)

    def fail(self, *what: str, sentence: str = "The server is away.") -> None:
        def before(asked: str) -> None:
            if asked in what:
                raise ParleyError(sentence)

        self.before = before

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.before is not None:
            self.before(what)


class Roomy(Room):
    """Its people write `!new`."""

    verb = "!"
    rooms: ChatRooms | None = None

    async def new(self, who: str, name: str = "", *, at: Place | None = None) -> str:
        """Somebody opens a chat; the room it is in."""
        before = len(self.server.made)
        place = {} if at is None else {"at": at}
        await self.hear(who, f"!new {name}".strip(), **place)
        await until(lambda: len(self.server.made) == before + 1)
        return list(self.server.made.values())[-1]

    @property
    def server(self) -> RoomServer:
        assert isinstance(self.rooms, RoomServer)
        return self.rooms


def in_room(room: str) -> Place:
    def place(who: str) -> SessionSource:
        return SessionSource("desk", chat_id=room, user_id=who, user_name=who.title())

    return place


async def open_roomy(house: House, server: RoomServer, **sections: object) -> Roomy:
    """A gateway on the house whose surface has these rooms."""

    class Here(Roomy):
        rooms = server

    house.desk_type = Here
    desk: Desk = await house.open(**sections)  # type: ignore[arg-type]
    assert isinstance(desk, Roomy)
    return desk
