"""Who comes and goes: we ourselves, the person of a chat, and how people call themselves."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from parley.protocol import SessionSource
from parley.surfaces.matrix.connection import Connection, MatrixFault, part
from parley.surfaces.matrix.rooms import Rooms, member_events, shown_name

__all__ = ["CameIn", "Change", "ChatLeft", "Deserted", "Membership", "Renamed", "WentOut"]

_log = logging.getLogger("parley.matrix")

_MOST_TOLD: Final = 200


@dataclass(frozen=True, slots=True)
class CameIn:
    """We are in this room now, and were not before."""

    room_id: str


@dataclass(frozen=True, slots=True)
class WentOut:
    """We are not in this room any more; nothing can be sent there."""

    room_id: str
    how: Literal["left", "kicked", "banned"]
    by: str


@dataclass(frozen=True, slots=True)
class ChatLeft:
    """A person has left the room of one of their chats: they are done with it for now."""

    room_id: str
    origin: str
    person: str


@dataclass(frozen=True, slots=True)
class Deserted:
    """Nobody else was in this room, and we have left it too."""

    room_id: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """Someone calls themselves otherwise; None when they have no name but their id."""

    room_id: str
    user_id: str
    name: str | None


Change: TypeAlias = CameIn | WentOut | ChatLeft | Deserted | Renamed


class Reachable(Protocol):
    """What this needs of the front door."""

    async def back(self, source: SessionSource) -> None: ...


class Membership:
    """Told of every room of a sync, after nio has taken it in and before its place is kept."""

    def __init__(self, connection: Connection, door: Reachable, rooms: Rooms) -> None:
        self._connection = connection
        self._door = door
        self._rooms = rooms
        self._in: set[str] = set()

    async def take(
        self,
        events: Iterable[tuple[str, Mapping[str, Any]]],
        left: Mapping[str, Mapping[str, Any] | None],
        *,
        first: bool = False,
    ) -> list[Change]:
        """All of one sync: its events by room, and the rooms that we are no longer in."""
        timelines: dict[str, list[Mapping[str, Any]]] = {}
        for room_id, event in events:
            timelines.setdefault(room_id, []).append(event)
        here = self._connection.nio.rooms
        changes: list[Change] = []
        for room_id in [*(here.keys() - self._in - timelines.keys()), *timelines]:
            if room_id in here:
                changes += await self.joined(room_id, timelines.get(room_id, ()), first=first)
        for room_id, event_of_it in left.items():
            changes += await self.left(room_id, event_of_it)
        return changes

    async def joined(
        self, room_id: str, timeline: Iterable[Mapping[str, Any]], *, first: bool = False
    ) -> list[Change]:
        """A room that we are in. `first` in the sync we start with: being there is no news then."""
        us, events = self._connection.user_id, list(member_events(timeline))
        changes: list[Change] = []
        entered = any(user == us and _is_entry(event, content) for user, event, content in events)
        if entered or (room_id not in self._in and not first):
            changes.append(CameIn(room_id))
            self._rooms.came_in(room_id)
            for source in self._sources(room_id):
                await self._door.back(source)
        self._in.add(room_id)
        latest = {user: (event, content) for user, event, content in events if user != us}
        for user, (event, content) in latest.items():
            changes += self._change(room_id, user, event, content)
        # A room that we have just made is empty as well: nobody has left it.
        gone = any(content.get("membership") in {"leave", "ban"} for _, content in latest.values())
        if gone and self._is_empty(room_id):
            changes += await self._desert(room_id)
        return changes

    async def left(self, room_id: str, event: Mapping[str, Any] | None) -> list[Change]:
        """A room that we are no longer in, with the event that says why, if there is one.

        Nothing follows from it when we were never in it, as with an invitation turned down.
        """
        us, event = self._connection.user_id, event or {}
        content = event.get("content")
        is_ban = isinstance(content, Mapping) and content.get("membership") == "ban"
        was_in = room_id in self._in or _before(event).get("membership") == "join"
        self._in.discard(room_id)
        self._rooms.went_out(room_id)
        if not was_in:
            return []
        by = str(event.get("sender", us))
        if by == us:
            return [WentOut(room_id, "left", us)]
        out = WentOut(room_id, "banned" if is_ban else "kicked", by)
        _log.warning("matrix_room_lost", extra={"room": room_id, "how": out.how, "by": by})
        return [out]

    def _change(
        self, room_id: str, user: str, event: Mapping[str, Any], content: Mapping[str, Any]
    ) -> list[Change]:
        now = content.get("membership")
        if now == "join":
            name = shown_name(content.get("displayname"))
            before = _before(event)
            known = before.get("membership") == "join"
            same = known and shown_name(before.get("displayname")) == name
            return [] if same else [Renamed(room_id, user, name)]
        facts = self._rooms.facts(room_id)
        is_theirs = facts is not None and facts.is_chat and facts.person == user
        if is_theirs and now in {"leave", "ban"}:
            return [ChatLeft(room_id, self._rooms.names.origin_of(room_id), user)]
        return []

    def _sources(self, room_id: str) -> list[SessionSource]:
        """The conversations that may wait for us there. A very large room's are found one by one,
        as people speak.
        """
        return [
            self._rooms.source(room_id, user) for user in self._rooms.others(room_id)[:_MOST_TOLD]
        ]

    def _is_empty(self, room_id: str) -> bool:
        """What we made for a person is kept: only we could ask them in again."""
        facts = self._rooms.facts(room_id)
        return facts is not None and facts.members <= 1 and not self._rooms.is_ours(room_id)

    async def _desert(self, room_id: str) -> list[Change]:
        path = f"/v3/rooms/{part(room_id)}"
        try:
            await self._connection.call("POST", f"{path}/leave", {})
            await self._connection.call("POST", f"{path}/forget", {})
        except MatrixFault as fault:
            # It costs nothing to stay in an empty room.
            _log.info("empty_room_kept", extra={"room": room_id, "why": str(fault)})
            return []
        self._in.discard(room_id)
        self._rooms.went_out(room_id)
        return [Deserted(room_id)]


def _before(event: Mapping[str, Any]) -> Mapping[str, Any]:
    unsigned = event.get("unsigned")
    before = unsigned.get("prev_content") if isinstance(unsigned, Mapping) else None
    return before if isinstance(before, Mapping) else {}


def _is_entry(event: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    return content.get("membership") == "join" and _before(event).get("membership") != "join"
