"""Keeps edits of a conversation and responses that are added to it apart."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

__all__ = ["ConversationGate"]


class ConversationGate:
    """A response is in the transcript before its items are stored: an edit between the two would
    begin a transcript without it.
    """

    def __init__(self) -> None:
        self._responses: Counter[str] = Counter()
        self._edits: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def adding(self, conversation: str) -> AsyncIterator[None]:
        """Add a response to it, once no edit is under way."""
        while (edit := self._edits.get(conversation)) is not None:
            await edit.wait()
        self._responses[conversation] += 1
        try:
            yield
        finally:
            self._responses[conversation] -= 1
            if not self._responses[conversation]:
                del self._responses[conversation]

    @contextmanager
    def editing(self, conversation: str) -> Iterator[bool]:
        """Edit it; whether you may: not while someone else edits it or a response is added."""
        if conversation in self._edits or conversation in self._responses:
            yield False
            return
        over = self._edits[conversation] = asyncio.Event()
        try:
            yield True
        finally:
            del self._edits[conversation]
            over.set()
