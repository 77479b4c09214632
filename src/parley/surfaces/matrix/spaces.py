"""A person's space, and in it a room for each of their chats; each is made once.

That one is being made is written down first, and every room says in its first event, which only
its creator writes, whose it is: after a crash in between the same room is found again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from weakref import WeakValueDictionary

from parley.agent.foreign import one_line
from parley.config.surfaces import MatrixSettings
from parley.profiles import DEFAULT_PROFILE
from parley.protocol import ParleyError, SessionSource
from parley.storage.people import Chat
from parley.surfaces.matrix.allowed import server_of
from parley.surfaces.matrix.connection import Connection, part
from parley.surfaces.matrix.retries import patiently
from parley.surfaces.matrix.room_names import Marks
from parley.surfaces.matrix.room_state import beginning, membership, read_state, set_state
from parley.surfaces.matrix.rooms import CHAT, SPACE, Rooms

__all__ = ["Spaces"]

_BEING_MADE: Final = ""
_SPACE_KEY: Final = "org.parley.space"
_CHAT_KEY: Final = "org.parley.chat"
_LONGEST_NAME: Final = 100
_LOOKS_AT_ONCE: Final = 8
_LOOKS: Final = (0.0, 0.5, 1.5)
_MAKE_WITHIN: Final = 90.0


class Spaces:
    """The rooms of people's chats (`ChatRooms`)."""

    def __init__(
        self,
        connection: Connection,
        marks: Marks,
        rooms: Rooms,
        settings: MatrixSettings,
        profile: str,
    ) -> None:
        self._connection = connection
        self._marks = marks
        self._rooms = rooms
        self._settings = settings
        self._profile = profile
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._via = [server_of(connection.user_id)]

    # ── what the gateway asks for ──

    async def open_room(self, source: SessionSource, chat: Chat) -> SessionSource:
        person = source.user_id
        if not person:
            raise ParleyError("A room can only be made for someone who is known.")
        async with self._one_at_a_time(person):
            space = await self._open_space(person, source.user_name)
            room = await self._open_chat(person, chat, space)
            if space is not None and not chat.archived:
                await self._link(space, room, chat.number)
        return replace(
            source,
            chat_id=self._rooms.names.origin_of(room),
            chat_type="dm",
            chat_name=_name(chat),
            thread_id=None,
        )

    async def name_room(self, chat: Chat) -> None:
        if chat.source is not None:
            room = self._rooms.names.current_of(chat.source.chat_id)
            shown = one_line(f"{_name(chat)} (archived)" if chat.archived else _name(chat), 255)
            await self._set(room, "m.room.name", {"name": shown})

    async def archive_room(self, chat: Chat) -> None:
        """An archived chat is taken out of the space; its room and we in it stay."""
        if chat.source is None:
            return
        person = _person(chat)
        room = self._rooms.names.current_of(chat.source.chat_id)
        async with self._one_at_a_time(person):
            await self.name_room(chat)
            space = await self._kept(SPACE + person)
            if space is not None and chat.archived:
                await self._unlink(space, room)
            elif space is not None:
                await self._invite(space, person)
                await self._link(space, room, chat.number)
            if not chat.archived:
                await self._invite(room, person)

    async def moved(self, chat: Chat, old: str) -> None:
        """The room of a chat was upgraded: the space shows the new one instead of the old."""
        if chat.source is None:
            return
        person = _person(chat)
        async with self._one_at_a_time(person):
            space = await self._kept(SPACE + person)
            if space is not None:
                await self._unlink(space, old)
                if not chat.archived:
                    room = self._rooms.names.current_of(chat.source.chat_id)
                    await self._link(space, room, chat.number)

    # ── making ──

    async def _open_space(self, person: str, name: str | None) -> str | None:
        if not self._settings.spaces:
            return None
        mark = SPACE + person
        kept = await self._kept(mark)
        if kept is None:
            marker = {"person": person, "profile": self._profile}
            kept = await self._find(mark, _SPACE_KEY, marker, person)
            if kept is None:
                kept = await self._make(
                    mark,
                    person,
                    {
                        "name": self._space_name(person, name),
                        "creation_content": {"type": "m.space", _SPACE_KEY: marker},
                        "initial_state": _private(),
                    },
                )
            await self._rooms.keep_space(mark, kept)
            self._rooms.expect(kept)
        await self._invite(kept, person)
        return kept

    async def _open_chat(self, person: str, chat: Chat, space: str | None) -> str:
        mark = f"{CHAT}{person}:{chat.number}"
        placed = chat.source.chat_id if chat.source is not None else None
        kept = await self._kept(mark, placed)
        if kept is None:
            marker = {"person": person, "number": chat.number, "profile": self._profile}
            kept = await self._find(mark, _CHAT_KEY, marker, person)
            if kept is None:
                state = _private()
                if self._settings.encrypt:
                    sealed = {"algorithm": "m.megolm.v1.aes-sha2"}
                    state.append(_state("m.room.encryption", sealed))
                if space is not None:
                    above = {"via": self._via, "canonical": True}
                    state.append(_state("m.space.parent", above, space))
                kept = await self._make(
                    mark,
                    person,
                    {
                        "name": _name(chat),
                        "is_direct": True,
                        "creation_content": {_CHAT_KEY: marker},
                        "initial_state": state,
                    },
                )
            sealed_there = await read_state(self._connection, kept, "m.room.encryption")
            await self._rooms.keep_chat(mark, kept, person, encrypted=sealed_there is not None)
            self._rooms.expect(kept)
        await self._invite(kept, person)
        return kept

    async def _make(self, mark: str, person: str, wanted: Mapping[str, Any]) -> str:
        """The person may do all that we may: it is their room (`trusted_private_chat`)."""
        await self._marks.put_marks({mark: _BEING_MADE})
        body = {
            "preset": "trusted_private_chat",
            "visibility": "private",
            "invite": [person],
            **wanted,
        }
        call = self._connection.call
        made = await patiently(lambda: call("POST", "/v3/createRoom", body, timeout=_MAKE_WITHIN))
        return str(made["room_id"])

    async def _kept(self, mark: str, placed: str | None = None) -> str | None:
        """The room that was made before, where it is now; None when we are not in it any more."""
        kept = await self._marks.mark(mark) or placed
        if not kept:
            return None
        room = self._rooms.names.current_of(kept)
        us = self._connection.user_id
        return room if await membership(self._connection, room, us) == "join" else None

    async def _find(
        self, mark: str, key: str, marker: Mapping[str, Any], person: str
    ) -> str | None:
        """A room of ours that was made for just this, and not written down.

        Where we know that one was being made, all rooms are looked at, and more than once: a slow
        homeserver may be at it still. Else, in case our own records are new, those that the
        person may be in.
        """
        was_being_made = await self._marks.mark(mark) == _BEING_MADE
        for pause in _LOOKS if was_being_made else _LOOKS[:1]:
            await asyncio.sleep(pause)
            found = await self._look(key, marker, None if was_being_made else person)
            if found is not None:
                return found
        return None

    async def _look(self, key: str, marker: Mapping[str, Any], person: str | None) -> str | None:
        joined = (await self._connection.call("GET", "/v3/joined_rooms")).get("joined_rooms", [])
        if person is not None:
            known = self._connection.nio.rooms
            joined = [each for each in joined if each not in known or person in known[each].users]
        turns = asyncio.Semaphore(_LOOKS_AT_ONCE)

        async def is_it(room: str) -> bool:
            async with turns:
                first = await beginning(self._connection, room)
            ours = first is not None and first.creator == self._connection.user_id
            return ours and first is not None and first.content.get(key) == marker

        found = await asyncio.gather(*map(is_it, joined))
        return next((room for room, fits in zip(joined, found, strict=True) if fits), None)

    # ── keeping ──

    async def _invite(self, room: str, person: str) -> None:
        """Ask the person in, unless they are, or were asked, or do not want to."""
        if await membership(self._connection, room, person) in {"leave", "knock"}:
            path, body = f"/v3/rooms/{part(room)}/invite", {"user_id": person}
            await patiently(lambda: self._connection.call("POST", path, body))

    async def _link(self, space: str, room: str, number: int) -> None:
        below = {"via": self._via, "suggested": True, "order": f"{number:08}"}
        if await read_state(self._connection, space, "m.space.child", room) != below:
            await self._set(space, "m.space.child", below, room)

    async def _unlink(self, space: str, room: str) -> None:
        if await read_state(self._connection, space, "m.space.child", room):
            await self._set(space, "m.space.child", {}, room)

    async def _set(self, room: str, kind: str, content: Mapping[str, Any], key: str = "") -> None:
        await patiently(lambda: set_state(self._connection, room, kind, content, key))

    def _one_at_a_time(self, person: str) -> asyncio.Lock:
        return self._locks.setdefault(person, asyncio.Lock())

    def _space_name(self, person: str, name: str | None) -> str:
        title = "Parley" if self._profile == DEFAULT_PROFILE else self._profile
        return one_line(f"{title} · {name or person}", _LONGEST_NAME)


def _name(chat: Chat) -> str:
    return one_line(chat.name or "", _LONGEST_NAME) or f"Chat {chat.number}"


def _person(chat: Chat) -> str:
    assert chat.source is not None
    return chat.source.user_id or chat.person.partition(":")[2]


def _private() -> list[dict[str, Any]]:
    """Who comes later does not see what was said before, and nobody comes unasked."""
    return [
        _state("m.room.history_visibility", {"history_visibility": "invited"}),
        _state("m.room.guest_access", {"guest_access": "forbidden"}),
    ]


def _state(kind: str, content: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    return {"type": kind, "state_key": key, "content": dict(content)}
