"""Many clients at once at an OpenAI-compatible server, and what each of their turns took.

The client is light, so that it is the server that is measured: a connection a client, a request
written whole, and while the clock runs only the first text and the end of the answer are looked
for. What the answers say is read afterwards.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from dataclasses import dataclass, field
from typing import Self

__all__ = ["Door", "Load", "Turn", "load", "text_of"]

_TURNS_OF_A_CONVERSATION = 8
_OPENED_AT_ONCE = 50
_PAUSE_AFTER_A_FAULT = 0.1
_SHORT = 120
_ASKED, _ANSWER = "hi", "echo: hi"
_FIRST_TEXT = re.compile(rb'"content": ?"[^"]')
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_crowds = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where a server is asked, and how it is told which conversation is meant."""

    port: int
    model: str
    key: str = field(default="none", repr=False)
    session_header: str = ""
    session_field: str = ""

    def request(self, session: str) -> bytes:
        asked: dict[str, object] = {
            "model": self.model,
            "messages": [{"role": "user", "content": _ASKED}],
            "stream": True,
        }
        if self.session_field:
            asked[self.session_field] = session
        body = json.dumps(asked).encode()
        head = [
            "POST /v1/chat/completions HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Authorization: Bearer {self.key}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        if self.session_header:
            head.append(f"{self.session_header}: {session}")
        return "\r\n".join([*head, "", ""]).encode() + body


@dataclass(frozen=True, slots=True)
class Turn:
    """How long a turn took: to its first streamed text, and to the end of its stream."""

    first_text: float
    whole: float


@dataclass(slots=True)
class Load:
    """What came of one crowd. `problem` is the first that went wrong, in the server's words.

    `server_cpu` is for who knows the server's process to fill in.
    """

    turns: list[Turn] = field(default_factory=list)
    faults: int = 0
    unanswered: int = 0
    seconds: float = 0.0
    client_cpu: float = 0.0
    server_cpu: float = 0.0
    problem: str = ""

    @property
    def rate(self) -> float:
        return len(self.turns) / self.seconds if self.seconds else 0.0

    def __iadd__(self, other: Load) -> Self:
        self.turns += other.turns
        self.faults += other.faults
        self.unanswered += other.unanswered
        self.seconds += other.seconds
        self.client_cpu += other.client_cpu
        self.server_cpu += other.server_cpu
        self.problem = self.problem or other.problem
        return self


async def load(door: Door, clients: int, *, seconds: float, answered_within: float) -> Load:
    """Every client asks again as soon as it is answered, until so many seconds have passed.

    Each begins a new conversation every few turns. What is not answered in time is given up.
    """
    crowd = _Crowd(door, f"c{time.time_ns()}-{next(_crowds)}")
    connections: list[_Connection] = []
    try:
        for first in range(0, clients, _OPENED_AT_ONCE):
            many = min(_OPENED_AT_ONCE, clients - first)
            connections += await asyncio.gather(*(_Connection.open(door.port) for _ in range(many)))
    except OSError as error:
        for connection in connections:
            connection.close()
        return Load(faults=clients, problem=f"no connection ({error})")
    cpu, started = time.process_time(), time.perf_counter()
    talks = [
        asyncio.create_task(crowd.talk(number, connection, until=started + seconds))
        for number, connection in enumerate(connections)
    ]
    done, late = await asyncio.wait(talks, timeout=answered_within)
    ended = time.perf_counter()
    cpu = time.process_time() - cpu
    for talk in late:
        talk.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for connection in connections:
        connection.close()
    for talk in done:
        talk.result()
    result = crowd.result()
    result.unanswered = len(late)
    result.seconds = ended - started
    result.client_cpu = cpu
    return result


class _Crowd:
    def __init__(self, door: Door, name: str) -> None:
        self._door = door
        self._name = name
        self._answers: list[tuple[Turn, bytes]] = []
        self._faults: list[str] = []

    async def talk(self, number: int, connection: _Connection, *, until: float) -> None:
        for turn in itertools.count():
            if time.perf_counter() >= until:
                return
            conversation = f"{self._name}-{number}-{turn // _TURNS_OF_A_CONVERSATION}"
            try:
                took = await connection.ask(self._door.request(conversation))
            except OSError as error:
                self._faults.append(f"the connection broke ({error})")
                await asyncio.sleep(_PAUSE_AFTER_A_FAULT)
            else:
                self._answers.append((took, connection.answer))
                if not connection.answer.startswith(b"HTTP/1.1 200"):
                    await asyncio.sleep(_PAUSE_AFTER_A_FAULT)

    def result(self) -> Load:
        turns = []
        for turn, answer in self._answers:
            if text_of(answer) == _ANSWER:
                turns.append(turn)
            else:
                self._faults.append(_in_short(answer))
        problem = self._faults[0] if self._faults else ""
        return Load(turns, faults=len(self._faults), problem=problem)


class _Connection(asyncio.Protocol):
    """One request at a time; it is opened again when the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._over: asyncio.Future[None] | None = None
        self._came = bytearray()
        self._first = self._last = 0.0

    @classmethod
    async def open(cls, port: int) -> Self:
        connection = cls(port)
        await connection._connect()
        return connection

    @property
    def answer(self) -> bytes:
        return bytes(self._came)

    async def ask(self, request: bytes) -> Turn:
        if self._transport is None:
            await self._connect()
        assert self._transport is not None
        self._came.clear()
        self._first = 0.0
        self._over = asyncio.get_running_loop().create_future()
        started = time.perf_counter()
        self._transport.write(request)
        await self._over
        return Turn((self._first or self._last) - started, self._last - started)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", self._port)

    def data_received(self, data: bytes) -> None:
        self._came += data
        if not self._first and _FIRST_TEXT.search(self._came):
            self._first = time.perf_counter()
        if self._over is not None and not self._over.done() and _is_whole(self._came):
            self._last = time.perf_counter()
            self._over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._over is not None and not self._over.done():
            self._over.set_exception(exc or ConnectionResetError("closed before the end"))


def _is_whole(answer: bytes | bytearray) -> bool:
    if answer.endswith(b"\r\n0\r\n\r\n"):
        return True
    length = _LENGTH.search(answer)
    if length is None:
        return False
    head, _, body = answer.partition(b"\r\n\r\n")
    return length.end() <= len(head) + 2 and len(body) >= int(length[1])


def text_of(answer: bytes) -> str:
    """All text of a streamed chat completion; empty when it is none, or has no proper end."""
    try:
        return _text_of(answer)
    except (ValueError, KeyError):
        return ""


def _text_of(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    stream = body if _LENGTH.search(head + b"\r\n") else _unchunked(body)
    events = [line[5:].strip() for line in stream.splitlines() if line.startswith(b"data:")]
    if not events or events.pop() != b"[DONE]":
        return ""
    chunks = [json.loads(event) for event in events]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", ())]
    return "".join(delta.get("content") or "" for delta in deltas)


def _unchunked(body: bytes) -> bytes:
    pieces = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        pieces.append(rest[:length])
        body = rest[length + 2 :]
    return b"".join(pieces)


def _in_short(answer: bytes) -> str:
    if text := text_of(answer):
        return f"it said “{text[:_SHORT]}”"
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0] + b": " + b" ".join(body.split())[:_SHORT]
    return words.decode(errors="replace")
