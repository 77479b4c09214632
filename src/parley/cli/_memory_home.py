"""The memory of a home, as its owner sees it: all of it, beside a gateway that may be running."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

from parley.cli._named import MOST_PEOPLE, person_named
from parley.cli._plain import one_line
from parley.cli._shared import current_profile
from parley.memory.desk import MemoryDesk, Whose
from parley.memory.finding import Finder
from parley.memory.views import Views
from parley.protocol import ParleyError
from parley.storage.memory import PROFILE, Fact, FactState, person_place

if TYPE_CHECKING:
    from parley.memory.embeddings import Embedder
    from parley.storage.contract import Store

__all__ = ["BY", "EVERY_STATE", "Asked", "Memory", "with_memory"]

T = TypeVar("T")

BY: Final = "owner"
EVERY_STATE: Final[tuple[FactState, ...]] = ("current", "replaced", "removed")
_MOST_NAMED: Final = 5
_MOST_SESSIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Asked:
    """Which part of it was asked for: of one person, of one chat, of the profile; or all."""

    person: str | None = None
    chat: str | None = None
    profile: bool = False

    def __post_init__(self) -> None:
        given = [self.person is not None, self.chat is not None, self.profile]
        if sum(given) > 1:
            raise ParleyError("Give one of --person, --chat and --profile-facts, not several.")

    @property
    def is_all(self) -> bool:
        return self.person is None and self.chat is None and not self.profile


class Memory:
    """An open store with the desk and the views on it."""

    def __init__(self, store: Store, desk: MemoryDesk, views: Views) -> None:
        self.store = store
        self.desk = desk
        self.views = views

    async def merge(self) -> None:
        """Take in what was changed by hand, and write the views that are behind."""
        for problem in await self.views.sync():
            sys.stderr.write(f"parley: {one_line(problem, longest=500)}\n")

    async def everything(self) -> Whose:
        return Whose((PROFILE, *await self._places("")))

    async def parts(self, asked: Asked) -> list[Whose]:
        """What is shown or exported. A person's is also what they said where others read."""
        if asked.is_all:
            return [await self.everything()]
        place = await self.place(asked)
        theirs = [Whose((place,))]
        if asked.person is not None:
            chats = await self._remembered_in()
            theirs += [Whose(chats, place.partition(":")[2])] if chats else []
        return theirs

    async def place(self, asked: Asked) -> str:
        """The one place that is meant; the profile's where none is named."""
        if asked.person is not None:
            return await self._person(asked.person)
        return PROFILE if asked.chat is None else await self._chat(asked.chat)

    async def facts(
        self, parts: Sequence[Whose], states: Sequence[FactState] = ("current",)
    ) -> list[Fact]:
        return [
            fact
            for whose in parts
            for fact in await self.store.facts(whose.places, person=whose.person, states=states)
        ]

    async def names(self) -> Mapping[str, str]:
        """What people call themselves."""
        users = await self.store.users(limit=MOST_PEOPLE)
        return {user.person: user.display_name for user in users if user.display_name}

    async def _places(self, prefix: str) -> tuple[str, ...]:
        found = [record.place for record in await self.store.places()]
        return tuple(sorted(each for each in found if each.startswith(prefix) and each != PROFILE))

    async def _person(self, wanted: str) -> str:
        # A program is remembered under a key of its own, and so is not one of the people.
        known = person_place(wanted.strip())
        if known in await self._places("person:"):
            return known
        return person_place((await person_named(self.store, wanted, may_be_new=True)).person)

    async def _chat(self, wanted: str) -> str:
        """By its whole name, or by the platform's own id of the chat."""
        said = wanted.strip().removeprefix("chat:")
        for known in (self._remembered_in, self._spoken_in):
            found = [place for place in await known() if said in _names_of_chat(place)]
            if len(found) == 1:
                return found[0]
            if found:
                several = ", ".join(one_line(each[5:], longest=80) for each in found[:_MOST_NAMED])
                raise ParleyError(f"Several chats are called so: {several}; give the whole name.")
        raise ParleyError(
            f"There is no chat {one_line(wanted, longest=60)} that others read too; "
            "`parley memory list` and `parley sessions list` name them."
        )

    async def _remembered_in(self) -> tuple[str, ...]:
        return await self._places("chat:")

    async def _spoken_in(self) -> tuple[str, ...]:
        """The places of all chats that have a session, whether or not anything is remembered."""
        from parley.memory.places import places_of
        from parley.protocol import SessionSource
        from parley.sessions.key import parse_session_key

        found: set[str] = set()
        for lane in {each.lane for each in await self.store.sessions(limit=_MOST_SESSIONS)}:
            try:
                name = parse_session_key(lane)
            except ParleyError:  # not a conversation with people
                continue
            source = SessionSource(name.platform, name.chat_id or "", chat_type=name.chat_type)
            found.add(places_of(lane, source).write)
        return tuple(sorted(place for place in found if place.startswith("chat:")))


def with_memory(
    work: Callable[[Memory], Awaitable[T]], *, make: bool = False, merge: bool = True
) -> T | None:
    """What `work` finds; None when there is no store yet, unless it is to be made."""
    from parley.cli._stored import stored

    profile = current_profile()

    async def run() -> T | None:
        async with stored(profile, make=make) as store:
            if store is None:
                return None
            views = Views(profile.memory, store)
            finder = Finder(store, _embedder)
            memory = Memory(store, MemoryDesk(store, views=views, search=finder), views)
            if merge:
                await memory.merge()
            return await work(memory)

    return asyncio.run(run())


def _embedder() -> Embedder | None:
    """What finds by meaning, where that is installed and not turned off."""
    from parley.config import load_settings
    from parley.memory.embeddings import find_embedder

    return find_embedder(load_settings(current_profile()).memory.embeddings)


def _names_of_chat(place: str) -> set[str]:
    """`chat:matrix:group:!room%3Aexample.org`, with and without its parts spelled out."""
    name = place.removeprefix("chat:")
    _, _, *rest = name.split(":")
    return {name, unquote(name), *(unquote(part) for part in rest[:1])}
