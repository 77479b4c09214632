"""Notices in rooms where more was written than could be fetched.

A notice is a mark from the transaction that takes the batch in until it was sent, so that a restart
neither forgets it nor sends it twice: its transaction id is the same each time.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Final

from parley.protocol import ParleyError
from parley.surfaces.matrix.connection import Connection
from parley.surfaces.matrix.errands import Errands
from parley.surfaces.matrix.incoming import AGENT_KEY
from parley.surfaces.matrix.room_names import Marks
from parley.surfaces.matrix.rooms import Rooms
from parley.surfaces.matrix.syncing import Batch

__all__ = ["MissedNotices", "send_notice"]

_log = logging.getLogger("parley.matrix")

_MARK: Final = "matrix:missed:"
_MISSED: Final = (
    "More was written here while I was away than I could fetch, and I missed the oldest of it. "
    "Please write again what I have not answered{mention}."
)


class MissedNotices:
    """Keep `marks` with each batch, then say `kept`; `start` sends what an earlier run did not."""

    def __init__(self, connection: Connection, marks: Marks, rooms: Rooms) -> None:
        self._connection = connection
        self._marks = marks
        self._rooms = rooms
        self._errands = Errands("missed", at_once=1)

    async def start(self) -> None:
        self.kept(await self._marks.marks(_MARK))

    async def close(self) -> None:
        await self._errands.close()

    def marks(self, batch: Batch) -> dict[str, str]:
        """One for each room and gap."""
        return {f"{_MARK}{batch.since} {room_id}": room_id for room_id in batch.missed}

    def kept(self, marks: Mapping[str, str]) -> None:
        for mark, room_id in marks.items():
            self._begin(mark, room_id)

    def _begin(self, mark: str, room_id: str) -> None:
        async def tell() -> None:
            facts = self._rooms.facts(room_id)
            if facts is not None and not facts.is_space:
                mention = ", and mention me" if facts.is_crowded else ""
                await send_notice(self._connection, room_id, _MISSED.format(mention=mention), mark)
            await self._marks.put_marks({mark: None})

        async def failed(error: ParleyError) -> None:
            _log.warning("notice_not_sent", extra={"room": room_id, "reason": str(error)})
            await self._marks.put_marks({mark: None})

        self._errands.begin(mark, tell, failed)


async def send_notice(connection: Connection, room_id: str, text: str, name: str) -> None:
    """Tell a room something, once for each name however often it is sent."""
    content = {"msgtype": "m.notice", "body": text, "m.mentions": {}, AGENT_KEY: {"v": 1}}
    txn = hashlib.sha256(name.encode()).hexdigest()[:32]
    await connection.send(room_id, "m.room.message", content, txn)
