"""A terminal that keeps every frame it gets, and confirms replies when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from parley.surfaces.terminal.client import Disconnected, TerminalClient
from parley.surfaces.terminal.wire import Accepted, Deliver, Frame, Show, Welcome
from tests.waiting import until

__all__ = ["Line"]

T = TypeVar("T")


class Line:
    """One connection to the terminal surface."""

    def __init__(self, path: Path, *, confirms: bool = True) -> None:
        self._path = path
        self._confirms = confirms
        self._client: TerminalClient | None = None
        self._reading: asyncio.Task[None] | None = None
        self.frames: list[Frame] = []
        self.ended = ""

    async def __aenter__(self) -> Self:
        self._client = await TerminalClient.connect(self._path)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        await self.client.close()

    @property
    def client(self) -> TerminalClient:
        assert self._client is not None
        return self._client

    async def hello(self, chat: str = "main") -> Welcome:
        welcome = await self.client.hello(chat, user="Ann")
        self._reading = asyncio.create_task(self._read())
        return welcome

    async def say(self, text: str, number: str) -> None:
        await self.client.say(number, text)

    async def ask(self, text: str, number: str) -> str:
        await self.say(text, number)
        await until(lambda: self.answer_to(number))
        found = self.answer_to(number)
        assert found is not None
        return found.text

    def all_of(self, kind: type[T]) -> list[T]:
        return [frame for frame in self.frames if isinstance(frame, kind)]

    def answer_to(self, number: str) -> Deliver | None:
        return next((d for d in self.all_of(Deliver) if number in d.answers), None)

    def accepted(self, number: str) -> str:
        return next((a.state for a in self.all_of(Accepted) if a.id == number), "")

    def streamed(self) -> str:
        return "".join(show.text for show in self.all_of(Show) if show.event == "text")

    async def _read(self) -> None:
        try:
            async for frame in self.client.frames():
                self.frames.append(frame)
                if isinstance(frame, Deliver) and self._confirms:
                    await self.client.ack(frame.delivery)
        except Disconnected as error:
            self.ended = str(error)
