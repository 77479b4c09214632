"""What is known of a room: whose it is, how many are in it, and whether it must be encrypted.

A conversation keeps the kind that it began with. In a room that began as one person's, that
person's messages are a `dm` for good; anyone else's there are a `group`'s, each in a session of
their own, so that nobody who comes later gets into what was said before. How many are there now
decides something else: in a room with a third person (`is_crowded`), invited ones included, the
rule for groups holds at once, and an answer is only given to who asks for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from parley.agent.foreign import one_line
from parley.protocol import SessionSource
from parley.surfaces.matrix.connection import Connection
from parley.surfaces.matrix.room_names import Marks, RoomNames

__all__ = ["CHAT", "SPACE", "RoomFacts", "Rooms", "member_events", "shown_name"]

CHAT: Final = "matrix:chat:"
"""Marks that begin so name the rooms of people's chats; empty while one is being made."""
SPACE: Final = "matrix:space:"
"""The same for people's spaces."""

_KIND: Final = "matrix:kind:"
_GROUP: Final = "group"
_ENCRYPTED: Final = "matrix:encrypted:"
_LONGEST_NAME: Final = 80


def shown_name(text: object) -> str | None:
    """A name that someone gave to themselves or to a room, fit to be shown; None if it is empty."""
    return (one_line(text, _LONGEST_NAME) or None) if isinstance(text, str) else None


def member_events(
    events: Iterable[object],
) -> Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Of all events those of `m.room.member`: whom it is about, the event, and what it says."""
    for event in events:
        if not isinstance(event, Mapping) or event.get("type") != "m.room.member":
            continue
        user, content = event.get("state_key"), event.get("content")
        if not isinstance(user, str) or not isinstance(content, Mapping):
            continue
        if isinstance(content.get("membership"), str):
            yield user, event, content


@dataclass(frozen=True, slots=True)
class RoomFacts:
    """How a room is just now."""

    room_id: str
    origin: str
    """The room that its conversation began in."""
    name: str | None
    members: int
    """With those who are invited, and with us."""
    person: str | None
    """Whose room it is: a chat of theirs, or one that began with them alone."""
    is_chat: bool
    """We made it, for a chat of that person."""
    is_space: bool
    encrypted: bool

    @property
    def is_crowded(self) -> bool:
        """Others would read what is meant for one: the rule for groups holds."""
        return self.members > 2


class Rooms:
    """The rooms we are in; asking costs nothing but memory."""

    def __init__(self, connection: Connection, marks: Marks, names: RoomNames) -> None:
        self._connection = connection
        self._marks = marks
        self.names = names
        self._kinds: dict[str, str] = {}
        self._chats: set[str] = set()
        self._spaces: set[str] = set()
        self._encrypted: set[str] = set()
        self._awaited: set[str] = set()

    async def load(self) -> None:
        """Before anything is sent: what was encrypted once stays so."""
        await self.names.load()
        kinds = await self._marks.marks(_KIND)
        self._kinds = {name.removeprefix(_KIND): kind for name, kind in kinds.items()}
        self._chats = {room for room in (await self._marks.marks(CHAT)).values() if room}
        self._spaces = {room for room in (await self._marks.marks(SPACE)).values() if room}
        for name in await self._marks.marks(_ENCRYPTED):
            self._note(name.removeprefix(_ENCRYPTED))

    # ── asking ──

    def facts(self, room_id: str) -> RoomFacts | None:
        """None when we are not in it, or have not heard of it yet."""
        room = self._connection.nio.rooms.get(room_id)
        if room is None:
            return None
        origin = self.names.origin_of(room_id)
        return RoomFacts(
            room_id,
            origin,
            name=shown_name(room.name),
            # Where both are known and differ, it is the larger number that is careful.
            members=max(room.member_count, len(room.users)),
            person=self.person_of(room_id),
            is_chat=origin in self._chats and self.names.current_of(origin) == room_id,
            is_space=room.room_type == "m.space",
            encrypted=self._connection.is_encrypted(room_id),
        )

    def source(self, room_id: str, user_id: str, *, thread_id: str | None = None) -> SessionSource:
        """Where a message of this person in this room comes from; `settle` first."""
        origin, facts = self.names.origin_of(room_id), self.facts(room_id)
        return SessionSource(
            "matrix",
            chat_id=origin,
            chat_type="dm" if self._kinds.get(origin) == user_id else "group",
            user_id=user_id,
            user_name=self.name_of(room_id, user_id),
            chat_name=facts.name if facts else None,
            thread_id=thread_id,
        )

    def name_of(self, room_id: str, user_id: str) -> str | None:
        """How someone calls themselves in a room."""
        room = self._connection.nio.rooms.get(room_id)
        user = room.users.get(user_id) if room is not None else None
        return shown_name(user.display_name) if user is not None else None

    def others(self, room_id: str) -> list[str]:
        """Everyone else who is known to be in the room or invited."""
        room = self._connection.nio.rooms.get(room_id)
        if room is None:
            return []
        return [user for user in room.users if user != self._connection.user_id]

    def person_of(self, room_id: str) -> str | None:
        """Whose room it is; None for a group's, and before anyone spoke."""
        kind = self._kinds.get(self.names.origin_of(room_id))
        return None if kind == _GROUP else kind

    def is_ours(self, room_id: str) -> bool:
        """We made it for a person, and it was not replaced by another one since."""
        origin = self.names.origin_of(room_id)
        is_latest = self.names.current_of(origin) == room_id
        return is_latest and (origin in self._chats or origin in self._spaces)

    def is_out(self, room_id: str) -> bool:
        """We are not in this room: nothing can be sent there until we are asked in again."""
        return room_id not in self._connection.nio.rooms and room_id not in self._awaited

    # ── keeping ──

    async def settle(self, room_id: str, user_id: str) -> None:
        """Someone speaks: if it is the first word there, it decides what kind of room this is."""
        origin, facts = self.names.origin_of(room_id), self.facts(room_id)
        if origin not in self._kinds and facts is not None:
            await self.begin(room_id, None if facts.is_crowded else user_id)

    async def begin(self, room_id: str, person: str | None) -> None:
        """The conversation begins as this person's own, or as a group's; once and for all."""
        origin = self.names.origin_of(room_id)
        if origin not in self._kinds:
            kind = person or _GROUP
            await self._marks.put_marks({_KIND + origin: kind})
            self._kinds[origin] = kind

    async def keep_chat(self, mark: str, room_id: str, person: str, *, encrypted: bool) -> None:
        """We made this room, for a chat of this person; all that is to be known of it at once."""
        kept: dict[str, str | None] = {mark: room_id, _KIND + room_id: person}
        if encrypted:
            kept[_ENCRYPTED + room_id] = "yes"
        await self._marks.put_marks(kept)
        self._kinds[room_id] = person
        self._chats.add(room_id)
        if encrypted:
            self._note(room_id)

    async def keep_space(self, mark: str, room_id: str) -> None:
        await self._marks.put_marks({mark: room_id})
        self._spaces.add(room_id)

    async def keep_encrypted(self, *room_ids: str) -> None:
        """Remember these, and all that nio has seen to be encrypted since the last time.

        Before the place in the stream moves on, or a restart might forget it.
        """
        fresh = {*room_ids, *self._connection.nio.encrypted_rooms} - self._encrypted
        if fresh:
            await self._marks.put_marks({_ENCRYPTED + room: "yes" for room in fresh})
            for room_id in fresh:
                self._note(room_id)

    def expect(self, room_id: str) -> None:
        """We are in it already, and the next sync will say so."""
        if room_id not in self._connection.nio.rooms:
            self._awaited.add(room_id)

    def came_in(self, room_id: str) -> None:
        self._awaited.discard(room_id)

    def went_out(self, room_id: str) -> None:
        """What nio knows of the room is out of date from now on, and the key we wrote with too."""
        nio = self._connection.nio
        self._awaited.discard(room_id)
        nio.rooms.pop(room_id, None)
        if nio.olm is not None:
            nio.olm.outbound_group_sessions.pop(room_id, None)

    def _note(self, room_id: str) -> None:
        self._encrypted.add(room_id)
        self._connection.note_encrypted(room_id)
