"""The chats that people open: `C1`, `C2` … and the rooms they are in.

Where a surface has rooms, each chat is one, with a lane of its own. Elsewhere a chat is one of the
sessions of a lane. Whatever is done here may be done again after a crash, and is then done once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from parley.backends.base import Thread
from parley.gateway.delivery import ChatRooms, Deliveries
from parley.gateway.failures import NotNow
from parley.gateway.persist import until_stored
from parley.profiles import DEFAULT_PROFILE
from parley.protocol import ParleyError, SessionSource, person_of
from parley.sessions.key import parse_session_key
from parley.sessions.store import SessionStore
from parley.storage.contract import Draft, Store
from parley.storage.people import Chat

__all__ = ["Chats", "NotNow", "hello_text"]

_MARK: Final = "rooms:"
_THREADS: Final = 4_096
_START: Final = "start"
_PROGRAMS: Final = frozenset({"api", "direct", "task"})


class Chats:
    """The chats of one profile's people."""

    def __init__(self, store: Store, sessions: SessionStore, deliveries: Deliveries) -> None:
        self._store = store
        self._sessions = sessions
        self._deliveries = deliveries
        self._archived: set[str] = set()
        self._roomy: set[str] = set()
        self._threads: dict[tuple[str, str], Thread] = {}
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self) -> None:
        """Read what must be known before the first message comes."""
        self._archived = set(await self._store.archived_lanes())
        self._roomy = {name.removeprefix(_MARK) for name in await self._store.marks(_MARK)}

    def is_archived(self, lane: str) -> bool:
        return lane in self._archived

    # ── rooms ──

    def has_rooms(self, platform: str) -> bool:
        """Whether chats there are known to be rooms, even while the platform is not served."""
        return platform in self._roomy

    async def rooms(self, source: SessionSource) -> ChatRooms | None:
        """Who makes rooms there; None where a chat is a session.

        Raises `NotNow` when there are rooms, and nobody is there yet to make one.
        """
        surface = self._deliveries.surface(source)
        if surface is None:
            if self.has_rooms(source.platform):
                raise NotNow("The account it came in by is not served just now.")
            return None
        if surface.rooms is not None and source.platform not in self._roomy:
            # Kept: a command that is taken up after a restart is read before surfaces are there.
            await self._store.put_marks({f"{_MARK}{source.platform}": "yes"})
            self._roomy.add(source.platform)
        return surface.rooms

    async def first(
        self, rooms: ChatRooms, source: SessionSource, first_words: Callable[[Chat], str]
    ) -> Chat:
        """The chat that a person begins with, in a room that is there."""
        person = person_of(source)
        known = await self._store.chats(person)
        chat = next((each for each in known if _is_open(each, source)), None)
        if chat is None:
            # Not the first one again, which was put away or is another account's.
            key = f"{_START}:{known[-1].number}" if known else _START
            chat = await self._store.open_chat(person, key=key)
        return await self._place(rooms, source, chat, first_words)

    async def begin(
        self,
        rooms: ChatRooms,
        source: SessionSource,
        first_words: Callable[[Chat], str],
        *,
        key: str,
        name: str | None,
    ) -> Chat:
        """A new chat in a new room, once for each key."""
        chat = await self._store.open_chat(person_of(source), key=key, name=name)
        return await self._place(rooms, source, chat, first_words)

    async def adopt(self, source: SessionSource, lane: str, session: str) -> Chat:
        """The room for two that a person made themselves becomes a chat of theirs."""
        chat = await self._store.chat_of_session(person_of(source), session)
        return await self._store.place_chat(chat.person, chat.number, source, lane)

    async def _place(
        self,
        rooms: ChatRooms,
        source: SessionSource,
        chat: Chat,
        first_words: Callable[[Chat], str],
    ) -> Chat:
        lock = self._making.setdefault(chat.person, asyncio.Lock())
        async with lock:  # two who ask for it at once are given the same room
            try:
                found = await rooms.open_room(source, chat)
            except ParleyError as error:
                raise NotNow(str(error)) from error
        room = replace(found, account=source.account, profile=source.profile)
        lane = self._sessions.key_for(room)
        chat = await self._store.place_chat(chat.person, chat.number, room, lane)
        if chat.archived:
            self._archived.add(lane)
        await self._greet(lane, room, chat, first_words(chat))
        return chat

    async def greet_newcomer(self, lane: str, source: SessionSource) -> None:
        """Say hello to someone who writes to the agent alone for the first time, once."""
        surface = self._deliveries.surface(source)
        if surface is None or not surface.greets or source.chat_type != "dm":
            return
        draft = Draft(
            dedupe=f"hello:{person_of(source)}",
            source=source,
            text=hello_text(source, verb=surface.verb),
            kind="notice",
        )
        await until_stored(partial(self._store.post, lane, draft))
        self._deliveries.look_again(source.platform)

    async def _greet(self, lane: str, room: SessionSource, chat: Chat, text: str) -> None:
        draft = Draft(
            dedupe=f"chat:{chat.person}:{chat.number}", source=room, text=text, kind="notice"
        )
        await until_stored(partial(self._store.post, lane, draft))
        self._deliveries.look_again(room.platform)

    async def rename(self, rooms: ChatRooms | None, chat: Chat, name: str) -> None:
        """Raises `NotNow` when only the platform did not follow."""
        await self._store.name_chat(chat.person, chat.number, name)
        if rooms is not None and chat.source is not None:
            await _followed(rooms.name_room(replace(chat, name=name)))

    async def archive(self, rooms: ChatRooms | None, chat: Chat, *, archived: bool) -> None:
        """Raises `NotNow` when only the platform did not follow."""
        await self._store.archive_chat(chat.person, chat.number, archived=archived)
        if chat.source is None or chat.lane is None:
            return
        if archived:
            self._archived.add(chat.lane)
        else:
            self._archived.discard(chat.lane)
        if rooms is not None:
            await _followed(rooms.archive_room(replace(chat, archived=archived)))

    # ── as another agent knows them ──

    async def thread(self, lane: str, session: str, source: SessionSource) -> Thread:
        """The name of a conversation for another agent. A new session is another thread."""
        known = self._threads.get((lane, session))
        if known is None:
            if len(self._threads) >= _THREADS:
                del self._threads[next(iter(self._threads))]
            known = self._threads[lane, session] = await self._thread(lane, session, source)
        return known

    async def _thread(self, lane: str, session: str, source: SessionSource) -> Thread:
        platform, user = source.platform, source.user_id or source.chat_id
        chat = await self._store.chat_at(lane)
        if chat is not None:
            whose = chat.person.partition(":")[2]
            label = chat.label if chat.session == session else f"{chat.label}.{session}"
            return Thread(platform, whose, label)
        if source.chat_type == "dm" and platform not in _PROGRAMS:
            chat = await self._store.chat_of_session(person_of(source), session)
            return Thread(platform, user, chat.label)
        if source.chat_type != "dm":
            user = parse_session_key(lane).participant or "*"
        place = f"{source.chat_id}/{source.thread_id}" if source.thread_id else source.chat_id
        return Thread(platform, user, f"{place}#{session}")


def _is_open(chat: Chat, source: SessionSource) -> bool:
    """Whether it is a room of the same account, or is to be one, and in use."""
    if chat.source is None:
        return chat.lane is None and not chat.archived
    return chat.source.account == source.account and not chat.archived


async def _followed(change: Awaitable[None]) -> None:
    try:
        await change
    except ParleyError as error:
        raise NotNow(str(error)) from error


def hello_text(source: SessionSource, *, verb: str, name: str = "") -> str:
    """The first words to a person; `name` is what they call the agent."""
    profile = source.profile or DEFAULT_PROFILE
    name = name or ("Parley" if profile == DEFAULT_PROFILE else profile)
    to = f", {source.user_name}" if source.user_name else ""
    return (
        f"Hello{to}! I am {name}, an agent that talks and works with you here. Just write what is "
        f"on your mind; `{verb}help` lists what else you can tell me."
    )
