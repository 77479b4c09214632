"""What is remembered, as lent to the tools of one turn: its place, its person, and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from parley.agent.tools.base import ToolError
from parley.gateway.persist import until_stored
from parley.memory.desk import MemoryDesk, Whose
from parley.memory.places import Places
from parley.protocol import ParleyError
from parley.storage.contract import Claim
from parley.storage.memory import Fact, Forgotten

__all__ = ["TurnMemory"]

T = TypeVar("T")


class TurnMemory:
    """Searches all that may be used there; changes only what is the person's own."""

    def __init__(self, desk: MemoryDesk, claim: Claim, places: Places) -> None:
        self._desk = desk
        self._turn = claim.turn
        self._places = places
        self._person = claim.payer.user
        # Where others read along, each may change what came from their own words.
        self._own = Whose((places.write,), None if places.is_private else self._person)

    async def search(self, query: str, *, limit: int) -> Sequence[Fact]:
        return await self._desk.search(query, Whose(self._places.read), limit=limit)

    async def add(self, call: str, text: str, *, kind: str, outside: str = "") -> Fact:
        add = partial(self._desk.add, self._places.write, text, kind=kind, person=self._person)
        add = partial(add, outside=outside)
        by, name = self._person, f"tool:{call}"
        return await _done(partial(add, by=by, origin="tool", dedupe=name, turn=self._turn))

    async def update(self, call: str, id: int, text: str, *, outside: str = "") -> Fact:
        change = partial(self._desk.change, id, text, self._own, outside=outside)
        by, name = self._person, f"tool:{call}"
        return await _done(partial(change, by=by, origin="tool", dedupe=name, turn=self._turn))

    async def forget(self, call: str, ids: Sequence[int]) -> Forgotten:
        forget = partial(self._desk.forget, ids, self._own)
        return await _done(partial(forget, by=self._person, dedupe=f"tool:{call}"))


async def _done(change: Callable[[], Awaitable[T]]) -> T:
    try:
        return await until_stored(change)
    except ParleyError as error:
        raise ToolError(str(error)) from error
