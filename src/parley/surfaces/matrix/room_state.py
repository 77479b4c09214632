"""What the homeserver says of a room when it is asked: where what nio knows is too little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parley.surfaces.matrix.connection import Connection, MatrixFault, part

__all__ = [
    "Beginning",
    "StateEvent",
    "beginning",
    "members",
    "membership",
    "read_event",
    "read_state",
    "set_state",
]


@dataclass(frozen=True, slots=True)
class StateEvent:
    """Who said it, and what."""

    event_id: str
    sender: str
    content: Mapping[str, Any]


class Beginning(StateEvent):
    """A room's first event, which nobody can change afterwards."""

    __slots__ = ()

    @property
    def creator(self) -> str:
        return self.sender

    @property
    def is_space(self) -> bool:
        return self.content.get("type") == "m.space"

    @property
    def predecessor(self) -> str | None:
        """The room that this one replaces."""
        told = self.content.get("predecessor")
        room_id = told.get("room_id") if isinstance(told, Mapping) else None
        return room_id if isinstance(room_id, str) else None

    @property
    def more_creators(self) -> frozenset[str]:
        """Those who have the creator's power too, in rooms that know of such."""
        told = self.content.get("additional_creators")
        return frozenset(filter(lambda each: isinstance(each, str), told or ()))


def _path(room_id: str, kind: str, key: str) -> str:
    return f"/v3/rooms/{part(room_id)}/state/{part(kind)}/{part(key)}"


async def read_state(
    connection: Connection, room_id: str, kind: str, key: str = ""
) -> dict[str, Any] | None:
    """The content of a state event; None when there is none, or when we were never in the room."""
    try:
        return await connection.call("GET", _path(room_id, kind, key))
    except MatrixFault as fault:
        if fault.status in {403, 404}:
            return None
        raise


async def set_state(
    connection: Connection, room_id: str, kind: str, content: Mapping[str, Any], key: str = ""
) -> None:
    """The same content again makes no new event."""
    await connection.call("PUT", _path(room_id, kind, key), content)


async def read_event(
    connection: Connection, room_id: str, kind: str, key: str = ""
) -> StateEvent | None:
    """The same with its sender."""
    try:
        told = await connection.call("GET", _path(room_id, kind, key), query={"format": "event"})
    except MatrixFault as fault:
        if fault.status in {403, 404}:
            return None
        raise
    sender, content = told.get("sender"), told.get("content")
    if not isinstance(sender, str) or not isinstance(content, dict):
        return None
    return StateEvent(str(told.get("event_id", "")), sender, content)


async def beginning(connection: Connection, room_id: str) -> Beginning | None:
    """None when we may not see it."""
    first = await read_event(connection, room_id, "m.room.create")
    return None if first is None else Beginning(first.event_id, first.sender, first.content)


async def membership(connection: Connection, room_id: str, user_id: str) -> str:
    """`join`, `invite`, `ban`, `knock` or `leave`."""
    told = await read_state(connection, room_id, "m.room.member", user_id)
    return str((told or {}).get("membership", "leave"))


async def members(connection: Connection, room_id: str) -> dict[str, str]:
    """Everyone who is in the room or invited, with their membership."""
    path = f"/v3/rooms/{part(room_id)}/members"
    told = await connection.call("GET", path, query={"not_membership": "leave"})
    found: dict[str, str] = {}
    for event in told.get("chunk", ()):
        state = event.get("content", {}).get("membership")
        if state in {"join", "invite"}:
            found[str(event.get("state_key"))] = state
    return found
