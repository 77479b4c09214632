"""A loopback HTTP server that sends the bytes it is told to, in the pieces it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

__all__ = ["Answer", "RawServer", "Seen", "as_json", "chunk_of", "said", "stream"]

Ending: TypeAlias = Literal["end", "cut", "hold", "close"]
"""`end`: in good order, and the connection is kept. `cut`: the connection ends in the middle.
`hold`: nothing more comes. `close`: no length was given, the end of the connection is the end.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request. Names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


@dataclass(frozen=True, slots=True)
class Answer:
    """`pieces` are sent one by one; an event among them is waited for. `raw` is sent as it is."""

    pieces: Sequence[bytes | asyncio.Event] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    ending: Ending = "end"
    raw: bytes | None = None


Script: TypeAlias = Callable[[Seen], Answer | None]
"""The answer to a request; None closes the connection without one."""


def said(**fields: object) -> bytes:
    """One chunk of a chat completion, as an event."""
    return chunk_of(
        {"id": "chatcmpl-1", "model": "far", "choices": [{"index": 0, "delta": fields}]}
    )


def chunk_of(value: object, *, event: str | None = None) -> bytes:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(value)}\n\n".encode()


def stream(*texts: str, finish: str | None = "stop", done: bool = True) -> Answer:
    """An ordinary answer of these pieces of text."""
    pieces = [said(content=text) for text in texts]
    if finish is not None:
        last = {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
        pieces.append(chunk_of(last))
    if done:
        pieces.append(b"data: [DONE]\n\n")
    return Answer(pieces)


def as_json(value: object, *, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(
        [json.dumps(value).encode()], status, {"Content-Type": "application/json", **named}
    )


class RawServer:
    """`accepted` counts connections; `left` those that clients ended in the midst of an answer."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.seen: list[Seen] = []
        self.accepted = 0
        self.left = 0
        self.answering = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        assert self._server is not None
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    @property
    def asked(self) -> list[Seen]:
        """The requests for an answer."""
        return [seen for seen in self.seen if seen.path.endswith("/chat/completions")]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    seen = await _read(reader)
                    self.seen.append(seen)
                    answer = self._script(seen)
                    if answer is None or not await self._send(answer, reader, writer):
                        return
        finally:
            writer.close()

    async def _send(
        self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection is kept."""
        self.answering += 1
        watch = asyncio.ensure_future(_gone(reader))
        sending = asyncio.ensure_future(self._write(answer, writer))
        try:
            await asyncio.wait([watch, sending], return_when=asyncio.FIRST_COMPLETED)
            if watch.done() and not sending.done():
                self.left += 1
                return False
            await sending
        except ConnectionError:
            self.left += 1
            return False
        else:
            return answer.raw is None and answer.ending == "end"
        finally:
            self.answering -= 1
            for task in (watch, sending):
                task.cancel()
            await asyncio.wait([watch, sending])

    async def _write(self, answer: Answer, writer: asyncio.StreamWriter) -> None:
        if answer.raw is not None:
            writer.write(answer.raw)
            await writer.drain()
            return
        chunked = answer.ending != "close"
        headers = {"Content-Type": "text/event-stream", **answer.headers}
        headers |= {"Transfer-Encoding": "chunked"} if chunked else {"Connection": "close"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {answer.status} Status\r\n{lines}\r\n".encode())
        for piece in answer.pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            elif piece:
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                await writer.drain()
                await asyncio.sleep(0)
        if answer.ending == "hold":
            await asyncio.Event().wait()
        if answer.ending == "end":
            writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _gone(reader: asyncio.StreamReader) -> None:
    """Come back when the client has left. Reading would take from its next request."""
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.005)


async def _read(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body)
