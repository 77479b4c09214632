"""The terminal's end of the socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from parley.protocol import ParleyError
from parley.surfaces.terminal.wire import (
    Ack,
    AskAbout,
    AskStatus,
    Frame,
    Hello,
    Problem,
    Say,
    Status,
    TakeBack,
    Welcome,
    decode,
    encode,
)

__all__ = ["Disconnected", "TerminalClient"]

_HEARD_WITHIN = 2.0

# The gateway is trusted; a reply that could not be read would be sent again for ever.
_LONGEST_FRAME = 64 * 1024 * 1024


class Disconnected(ParleyError):
    """The gateway went away."""


class TerminalClient:
    """One open conversation. Make it with `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._left = False

    @classmethod
    async def connect(cls, path: Path) -> TerminalClient:
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST_FRAME)
        except OSError as error:
            raise Disconnected("No gateway is running here.") from error
        return cls(reader, writer)

    async def hello(self, chat: str, *, user: str = "", once: bool = False) -> Welcome:
        await self._send(Hello(chat, user, once))
        answer = await self.receive()
        if not isinstance(answer, Welcome):
            raise Disconnected("The gateway did not answer as expected.")
        return answer

    async def say(self, number: str, text: str) -> None:
        await self._send(Say(number, text))

    async def take_back(self, number: str) -> None:
        await self._send(TakeBack(number))

    async def ask_about(self, number: str) -> None:
        await self._send(AskAbout(number))

    async def ack(self, delivery: int) -> None:
        await self._send(Ack(delivery))

    async def status(self) -> Status:
        """For a connection of its own: the next frame is the status."""
        await self._send(AskStatus())
        answer = await self.receive()
        if not isinstance(answer, Status):
            raise Disconnected("The gateway did not answer as expected.")
        return answer

    async def receive(self) -> Frame:
        try:
            line = await self._reader.readline()
        except (OSError, ValueError) as error:
            raise Disconnected("The connection to the gateway broke.") from error
        if not line:
            raise Disconnected("The gateway went away.")
        frame = decode(line)
        if isinstance(frame, Problem):
            raise Disconnected(frame.sentence)
        return frame

    async def frames(self) -> AsyncIterator[Frame]:
        while True:
            yield await self.receive()

    async def close(self) -> None:
        """Leave when the other end has read everything: what it says meanwhile would cut it off."""
        if self._left:
            return
        self._left = True
        # RuntimeError: someone is reading just now, and will see the end themselves.
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            self._writer.write_eof()
            async with asyncio.timeout(_HEARD_WITHIN):
                while await self._reader.read(_LONGEST_FRAME):
                    pass
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _send(self, frame: Frame) -> None:
        if self._left:
            raise Disconnected("This conversation was left.")
        try:
            self._writer.write(encode(frame))
            await self._writer.drain()
        except OSError as error:
            raise Disconnected("The gateway went away.") from error
