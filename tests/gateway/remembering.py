"""A house whose commands reach what is remembered; facts are planted in its store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from parley.gateway import serving
from parley.gateway.commands import COMMANDS, CommandCall, Reach
from parley.gateway.commands.base import Reply
from parley.memory.desk import MemoryDesk
from parley.memory.places import Places, places_of
from parley.protocol import InboundMessage, SessionSource
from parley.sessions.key import build_session_key
from parley.storage.contract import Store
from parley.storage.memory import Edit, NewFact
from tests.gateway.house import House
from tests.gateway.room import Place, Room, direct

__all__ = ["Folding", "Remembered"]


@dataclass
class Folding:
    """What commands reach of memory, with a note of what is to be folded instead of folding it."""

    desk: MemoryDesk
    folding: dict[str, str] = field(default_factory=dict)

    def places(self, lane: str, source: SessionSource) -> Places:
        return places_of(lane, source)

    def compact(self, lane: str, session: str, source: SessionSource, name: str) -> bool:
        if session in self.folding:
            return False
        self.folding[session] = name
        return True


class Remembered:
    """A room in which people talk with an agent that remembers them."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        self.house = house
        self.room = Room()
        self.folds: Folding | None = None
        self._reached: Reach | None = None
        self._only_notes = False
        monkeypatch.setattr(serving, "Reach", self._reach)

    def _reach(self, **parts: Any) -> Reach:
        if self._only_notes:
            self.folds = Folding(parts["memory"].desk)
            parts["memory"] = self.folds
        self._reached = Reach(**parts)
        return self._reached

    async def open(self, *, folds: bool = True, **sections: Any) -> Remembered:
        """Without `folds`, it is only noted what is to be folded."""
        self._only_notes = not folds
        self.house.desk_type = Room
        desk = await self.house.open(**sections)
        assert isinstance(desk, Room)
        self.room = desk
        return self

    @property
    def store(self) -> Store:
        assert self.house.store is not None
        return self.house.store

    async def hear(self, who: str, text: str, *, at: Place = direct) -> str:
        return await self.room.hear(who, text, at=at)

    async def plant(
        self,
        who: str,
        *texts: str,
        at: Place = direct,
        kind: str = "note",
        sources: tuple[int, ...] = (),
    ) -> list[int]:
        """Facts from somebody's words; their ids."""
        source = at(who)
        place = places_of(build_session_key(source), source).write
        person = f"desk:{who}"
        adds = tuple(
            NewFact(text, kind=kind, sources=sources, person=person, said_at=1_790_000_000.0)
            for text in texts
        )
        await self.store.remember(place, Edit(adds=adds), by=person, origin="learned")
        return [fact.id for fact in await self.store.facts([place], person=person)][-len(texts) :]

    async def texts(self, who: str, *, at: Place = direct) -> list[str]:
        """What is remembered there."""
        source = at(who)
        place = places_of(build_session_key(source), source).write
        return [fact.text for fact in await self.store.facts([place])]

    async def half_done(self, who: str, text: str, event: str, *, at: Place = direct) -> Reply:
        """A command that is accepted and does its work, and whose answer is not stored yet."""
        source = at(who)
        lane = build_session_key(source)
        receipt = await self.store.submit(
            lane, f"desk::{event}", InboundMessage(source, text, event), kind="command"
        )
        session = await self.store.session_of(lane)
        assert session is not None
        assert self._reached is not None
        name, _, argument = text[1:].partition(" ")
        run: Callable[[CommandCall], Any] = COMMANDS[name].run
        reply: Reply = await run(
            CommandCall(receipt.inbox_id, argument, lane, source, session, None, self._reached)
        )
        return reply
