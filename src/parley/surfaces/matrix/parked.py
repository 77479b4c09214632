"""Conversations that wait for a room which we are not in: told as soon as we are back.

They are written down, threads and the people of large groups among them, so that a restart in
between does not leave a reply behind.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final, Protocol

from parley.protocol import SessionSource
from parley.surfaces.matrix.room_names import Marks

__all__ = ["Parked"]

_MARK: Final = "matrix:parked:"


class _Door(Marks, Protocol):
    """What is needed of the front door."""

    async def back(self, source: SessionSource) -> None: ...


class Parked:
    def __init__(self, door: _Door) -> None:
        self._door = door

    async def wait(self, source: SessionSource) -> None:
        """Before the reply is given back, or we might be in again without it."""
        text = json.dumps(source.to_dict(), sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        await self._door.put_marks({f"{_MARK}{source.chat_id}:{name}": text})

    async def back(self, origin: str) -> None:
        """We are in the room of the conversations that began in this one."""
        for name, text in (await self._door.marks(f"{_MARK}{origin}:")).items():
            await self._door.back(SessionSource.from_dict(json.loads(text)))
            await self._door.put_marks({name: None})
