"""A front door for tests of the parts of Matrix: it keeps in memory what it is told.

It is a `FrontDoor` without a gateway behind it. `marks_kept` can be handed to the next one, as
the store would after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parley.gateway.requests import ProfileDoor
from parley.gateway.status import GatewayStatus, Introduction
from parley.protocol import InboundMessage, ParleyError, SessionSource
from parley.storage.contract import Receipt

__all__ = ["Door"]


class Door:
    """All that came in is in the lists, in order."""

    def __init__(self, marks_kept: dict[str, str] | None = None) -> None:
        self.marks_kept = {} if marks_kept is None else marks_kept
        self.admitted: list[InboundMessage] = []
        self.taken_back: list[tuple[SessionSource, str]] = []
        self.welcomed: list[tuple[SessionSource, str]] = []
        self.came_back: list[SessionSource] = []
        self._seen: set[tuple[str, str]] = set()

    async def admit(self, message: InboundMessage) -> Receipt:
        return (await self.admit_all([message], {}))[0]

    async def admit_all(
        self, messages: Sequence[InboundMessage], marks: Mapping[str, str | None]
    ) -> list[Receipt]:
        receipts = []
        for message in messages:
            name = (message.source.chat_id, message.event_id)
            fresh = name not in self._seen
            if fresh:
                self._seen.add(name)
                self.admitted.append(message)
            receipts.append(Receipt("queued" if fresh else "duplicate", len(self.admitted)))
        await self.put_marks(marks)
        return receipts

    async def take_back(self, source: SessionSource, event_id: str) -> bool:
        self.taken_back.append((source, event_id))
        return True

    async def welcome(self, source: SessionSource, event_id: str) -> None:
        if all(event_id != known for _, known in self.welcomed):
            self.welcomed.append((source, event_id))

    async def mark(self, name: str) -> str | None:
        return self.marks_kept.get(name)

    async def marks(self, prefix: str) -> dict[str, str]:
        return {name: kept for name, kept in self.marks_kept.items() if name.startswith(prefix)}

    async def put_marks(self, marks: Mapping[str, str | None]) -> None:
        for name, kept in marks.items():
            if kept is None:
                self.marks_kept.pop(name, None)
            else:
                self.marks_kept[name] = kept

    async def back(self, source: SessionSource) -> None:
        self.came_back.append(source)

    def introduce(self, source: SessionSource) -> Introduction:
        return Introduction("0", 0, source.profile or "default", "agent")

    async def status(self) -> GatewayStatus:
        raise ParleyError("There is no gateway behind this door.")

    def profiles(self) -> tuple[str, ...]:
        return ("default",)

    def to(self, profile: str) -> ProfileDoor:
        raise ParleyError(f"There is nobody called {profile} behind this door.")
