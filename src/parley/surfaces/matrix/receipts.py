"""Read receipts: people see that their message has come in."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from parley.surfaces.matrix.connection import Connection, MatrixFault, part

__all__ = ["Receipts"]

_log = logging.getLogger("parley.matrix")

_AT_ONCE: Final = 4


class Receipts:
    """One call at a time for each room, and few in all; of those that wait only the last is sent.

    They are a courtesy: one that fails is not sent again, and answers do not wait behind them.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: dict[str, dict[str | None, str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def read(self, room_id: str, event_id: str, thread_id: str | None = None) -> None:
        """We have read up to this event, in its thread or outside of all threads."""
        self._waiting.setdefault(room_id, {})[thread_id] = event_id
        if room_id not in self._tasks:
            self._tasks[room_id] = asyncio.create_task(self._send(room_id))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, room_id: str) -> None:
        try:
            while room_id in self._waiting:
                async with self._turns:
                    for thread_id, event_id in self._waiting.pop(room_id, {}).items():
                        await self._send_one(room_id, event_id, thread_id)
        finally:
            self._tasks.pop(room_id, None)

    async def _send_one(self, room_id: str, event_id: str, thread_id: str | None) -> None:
        path = f"/v3/rooms/{part(room_id)}/receipt/m.read/{part(event_id)}"
        try:
            await self._connection.call("POST", path, {"thread_id": thread_id or "main"})
        except MatrixFault as fault:
            _log.debug("receipt_not_sent", extra={"reason": str(fault)})
