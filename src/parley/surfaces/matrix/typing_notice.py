"""The notice that the agent is typing, for as long as a turn runs in a room."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final

from parley.gateway.live import LiveEvent, TurnEnded
from parley.surfaces.matrix.connection import Connection, MatrixFault, part

__all__ = ["TypingNotice"]

_SOON: Final = 0.4
_REFRESH: Final = 20.0
_TIMEOUT_MS: Final = 30_000


@dataclass(slots=True)
class _Room:
    turns: set[tuple[str, int]] = field(default_factory=set)
    emptied: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class TypingNotice:
    """One call at a time for each room; what fails is left alone, for it is only a notice."""

    def __init__(
        self, connection: Connection, *, soon: float = _SOON, refresh: float = _REFRESH
    ) -> None:
        self._connection = connection
        self._soon = soon
        self._refresh = refresh
        self._rooms: dict[str, _Room] = {}

    def show(self, event: LiveEvent, *, room_id: str) -> None:
        turn = (event.session, event.turn)
        if isinstance(event.event, TurnEnded):
            self._end(turn)
        else:
            self._begin(turn, room_id)

    async def close(self) -> None:
        tasks = [room.task for room in self._rooms.values() if room.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._rooms.clear()

    def _begin(self, turn: tuple[str, int], room_id: str) -> None:
        room = self._rooms.setdefault(room_id, _Room())
        room.turns.add(turn)
        room.emptied.clear()
        if room.task is None:
            room.task = asyncio.create_task(self._keep(room_id, room), name="typing")

    def _end(self, turn: tuple[str, int]) -> None:
        """Wherever it was told of: the room may have been replaced since."""
        for room in self._rooms.values():
            room.turns.discard(turn)
            if not room.turns:
                room.emptied.set()

    async def _keep(self, room_id: str, room: _Room) -> None:
        # An answer that is there at once needs no notice before it.
        await _until(room.emptied, self._soon)
        while room.turns:
            await self._tell(room_id, is_typing=True)
            await _until(room.emptied, self._refresh)
            if not room.turns:
                await self._tell(room_id, is_typing=False)
        del self._rooms[room_id]

    async def _tell(self, room_id: str, *, is_typing: bool) -> None:
        path = f"/v3/rooms/{part(room_id)}/typing/{part(self._connection.user_id)}"
        body = {"typing": True, "timeout": _TIMEOUT_MS} if is_typing else {"typing": False}
        with contextlib.suppress(MatrixFault):
            await self._connection.call("PUT", path, body, timeout=10)


async def _until(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
