"""Rooms that are replaced: the conversation goes on in the new room, if it truly is its successor.

Whoever has the power in a room can say that another one replaces it. That is believed when the
new room names the old one as what it replaces, was made by someone who had the power to end the
old one, still has the person whose conversation it is, and is encrypted if the old one was.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

from parley.protocol import ParleyError
from parley.surfaces.matrix.allowed import server_of
from parley.surfaces.matrix.connection import Connection, MatrixFault, part
from parley.surfaces.matrix.errands import Errands
from parley.surfaces.matrix.room_names import Marks
from parley.surfaces.matrix.room_state import beginning, members, membership, read_event, read_state
from parley.surfaces.matrix.rooms import Rooms

__all__ = ["Moved", "Upgrades"]

_log = logging.getLogger("parley.matrix")

_UPGRADE: Final = "matrix:upgrade:"
_JOIN_WITHIN: Final = 120.0
_AT_ONCE: Final = 2
_SETTLED_WITHIN: Final = 10.0


@dataclass(frozen=True, slots=True)
class Moved:
    """A conversation went on from one room to the next."""

    origin: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class _Tombstone:
    old: str
    new: str
    sender: str
    refused: bool = False


class _NotBelieved(ParleyError):
    """The new room is not what it is said to be."""


class Upgrades:
    """Follows tombstones. `moved` is told of each conversation that moved."""

    def __init__(
        self,
        connection: Connection,
        marks: Marks,
        rooms: Rooms,
        moved: Callable[[Moved], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._marks = marks
        self._rooms = rooms
        self._moved = moved
        self._errands = Errands("upgrade", at_once=_AT_ONCE)
        self._pending: dict[str, _Tombstone] = {}
        self.faults: dict[str, str] = {}
        """By old room: why its conversation cannot go on in the new one."""

    async def resume(self) -> None:
        """What an earlier run did not finish."""
        for name, text in (await self._marks.marks(_UPGRADE)).items():
            try:
                stone = _Tombstone(**json.loads(text))
            except (ValueError, TypeError):
                await self._marks.put_marks({name: None})
                continue
            if not stone.refused:
                self._begin(stone)

    async def take(self, room_id: str, new: str, sender: str) -> None:
        """Someone says that a room we are in is replaced. The same again changes nothing.

        On return it is durable, and is looked into by and by.
        """
        if not new.startswith("!"):
            return
        names = self._rooms.names
        if names.current_of(room_id) != room_id or names.origin_of(new) != new or new == room_id:
            return  # it has moved already, or would move in a circle
        stone = _Tombstone(room_id, new, sender)
        kept = await self._marks.mark(_UPGRADE + room_id)
        if kept in {_text(stone), _text(_refused(stone))}:
            return
        await self._marks.put_marks({_UPGRADE + room_id: _text(stone)})
        await self._errands.drop(new)
        self._begin(stone)

    async def came_in(self, room_id: str) -> None:
        """We are in this room now: if an old one waits for it, it need not wait longer."""
        await self.settled(room_id)
        for stone in list(self._pending.values()):
            if stone.new == room_id:
                self._begin(stone)

    async def settled(self, room_id: str) -> None:
        """Wait while it is being found out whether this room continues another one.

        Before its messages are taken in: they belong to the old conversation then.
        """
        await self._errands.wait(room_id, _SETTLED_WITHIN)

    async def idle(self) -> None:
        await self._errands.idle()

    async def close(self) -> None:
        await self._errands.close()

    def _begin(self, stone: _Tombstone) -> None:
        self._pending[stone.old] = stone
        self._errands.begin(stone.new, partial(self._follow, stone), partial(self._give_up, stone))

    async def _follow(self, stone: _Tombstone) -> None:
        us = self._connection.user_id
        was_in = await membership(self._connection, stone.new, us) == "join"
        if not was_in and not await self._join(stone):
            return  # only who is invited may come: `came_in` goes on from here
        self._rooms.expect(stone.new)
        try:
            await self._check(stone)
        except _NotBelieved as reason:
            await self._refuse(stone, str(reason), leave=not was_in)
            return
        if self._connection.is_encrypted(stone.old):
            await self._rooms.keep_encrypted(stone.new)
        done = {_UPGRADE + stone.old: None}
        origin = await self._rooms.names.move(stone.old, stone.new, done=done)
        self._pending.pop(stone.old, None)
        self.faults.pop(stone.old, None)
        await self._moved(Moved(origin, stone.old, stone.new))

    async def _join(self, stone: _Tombstone) -> bool:
        server = server_of(stone.sender)
        try:
            await self._connection.call(
                "POST",
                f"/v3/join/{part(stone.new)}",
                {},
                query={"via": server, "server_name": server},
                timeout=_JOIN_WITHIN,
            )
        except MatrixFault as fault:
            if fault.status in {403, 404}:
                return False
            raise
        return True

    async def _check(self, stone: _Tombstone) -> None:
        # What came by may have been an ordinary message that only looked like it.
        said = await read_event(self._connection, stone.old, "m.room.tombstone")
        if said is None or said.content.get("replacement_room") != stone.new:
            raise _NotBelieved("the old room does not say so")
        stone = replace(stone, sender=said.sender)
        first = await beginning(self._connection, stone.new)
        if first is None or first.predecessor != stone.old:
            raise _NotBelieved("the new room does not say that it replaces the old one")
        if first.creator != stone.sender and not await self._could_end(stone.old, first.creator):
            raise _NotBelieved("whoever made the new room had no power over the old one")
        person = self._rooms.person_of(stone.old)
        if person not in {None, stone.sender, *await members(self._connection, stone.new)}:
            raise _NotBelieved("the person whose conversation it is was not asked into it")
        if self._connection.is_encrypted(stone.old):
            sealed = await read_state(self._connection, stone.new, "m.room.encryption")
            if not sealed:
                raise _NotBelieved("the old room was encrypted and the new one is not")

    async def _could_end(self, room_id: str, user_id: str) -> bool:
        first = await beginning(self._connection, room_id)
        if first is not None and user_id in {first.creator, *first.more_creators}:
            return True
        levels = await read_state(self._connection, room_id, "m.room.power_levels") or {}
        needed = levels.get("events", {}).get("m.room.tombstone", levels.get("state_default", 50))
        has = levels.get("users", {}).get(user_id, levels.get("users_default", 0))
        return isinstance(has, int) and isinstance(needed, int) and has >= needed

    async def _refuse(self, stone: _Tombstone, why: str, *, leave: bool) -> None:
        self._pending.pop(stone.old, None)
        self.faults[stone.old] = f"A room was replaced, and the new one is not used: {why}."
        _log.warning(
            "The room %s was replaced by %s, which is not used: %s.", stone.old, stone.new, why
        )
        await self._marks.put_marks({_UPGRADE + stone.old: _text(_refused(stone))})
        if leave:
            await self._connection.call("POST", f"/v3/rooms/{part(stone.new)}/leave", {})

    async def _give_up(self, stone: _Tombstone, fault: ParleyError) -> None:
        await self._refuse(stone, f"it cannot be entered ({fault})", leave=False)


def _refused(stone: _Tombstone) -> _Tombstone:
    return replace(stone, refused=True)


def _text(stone: _Tombstone) -> str:
    return json.dumps(asdict(stone))
