"""Rooms that were upgraded: a conversation keeps the name of the room that it began in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

__all__ = ["Marks", "RoomNames"]

_MOVED: Final = "matrix:moved:"
_ROOM: Final = "matrix:room:"


class Marks(Protocol):
    """What a surface must not forget, as the front door keeps it."""

    async def mark(self, name: str) -> str | None: ...
    async def marks(self, prefix: str) -> dict[str, str]: ...
    async def put_marks(self, marks: Mapping[str, str | None]) -> None: ...


class RoomNames:
    """Which room a conversation began in (its origin), and which one it is in now.

    `SessionSource.chat_id` is the origin, so that the session stays the same; what is sent goes to
    the current room.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._origins: dict[str, str] = {}
        self._current: dict[str, str] = {}

    async def load(self) -> None:
        moved, current = await self._marks.marks(_MOVED), await self._marks.marks(_ROOM)
        self._origins = {name.removeprefix(_MOVED): origin for name, origin in moved.items()}
        self._current = {name.removeprefix(_ROOM): room for name, room in current.items()}

    def origin_of(self, room_id: str) -> str:
        return self._origins.get(room_id, room_id)

    def current_of(self, chat_id: str) -> str:
        return self._current.get(self.origin_of(chat_id), chat_id)

    async def move(self, old: str, new: str, *, done: Mapping[str, str | None]) -> str:
        """The conversation of `old` goes on in `new`; returns its origin.

        `done` are marks that change in the same transaction.
        """
        origin = self.origin_of(old)
        await self._marks.put_marks({_MOVED + new: origin, _ROOM + origin: new, **done})
        self._origins[new], self._current[origin] = origin, new
        return origin
