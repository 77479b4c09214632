"""People who talk by a terminal or a webhook, and keep all that they are sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from parley.gateway.home import socket_path
from parley.surfaces.terminal.client import Disconnected, TerminalClient
from parley.surfaces.terminal.wire import Deliver, Frame
from tests.isolation.canaries import Canary
from tests.isolation.family import Family
from tests.isolation.seats import Seat

__all__ = ["Answers", "Posted", "Talk", "at_terminal", "at_webhook"]


@dataclass(slots=True)
class Talk:
    """What one person asked, event by event, and was answered; `frames` is all a terminal saw."""

    seat: Seat
    asked: dict[str, str] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)

    @property
    def unanswered(self) -> list[str]:
        return [event for event in self.asked if event not in self.answered]

    @property
    def last(self) -> str:
        return next(reversed(self.answered.values()), "")


# ── terminals ──


class _Terminal:
    def __init__(self, talk: Talk, client: TerminalClient) -> None:
        self._talk = talk
        self._client = client
        self._arrived = asyncio.Event()

    async def ask(self, text: str, event: str, *, seconds: float) -> str:
        self._talk.asked[event] = text
        await self._client.say(event, text)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while event not in self._talk.answered:
                    self._arrived.clear()
                    await self._arrived.wait()
        return self._talk.answered.get(event, "")

    async def read(self) -> None:
        with contextlib.suppress(Disconnected):
            async for frame in self._client.frames():
                self._talk.frames.append(frame)
                if isinstance(frame, Deliver):
                    for event in frame.answers:
                        self._talk.answered[event] = frame.text
                    await self._client.ack(frame.delivery)
                    self._arrived.set()


@asynccontextmanager
async def at_terminal(family: Family, talk: Talk) -> AsyncIterator[_Terminal]:
    """At the socket of the profile whose account it is."""
    seat = talk.seat
    client = await TerminalClient.connect(socket_path(family.profile(seat.account)))
    talk.frames.append(await client.hello(seat.chat, user=seat.name.word))
    terminal = _Terminal(talk, client)
    reading = asyncio.create_task(terminal.read())
    try:
        yield terminal
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        await client.close()


# ── webhooks ──


@dataclass(frozen=True, slots=True)
class Posted:
    """One answer as it came: to whose address, with whose token."""

    account: str
    token: str
    body: str

    @property
    def answer(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


class Answers:
    """The programs that take the answers of all accounts, each at an address of its own."""

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self.url = ""
        self._waiting: dict[tuple[str, str, str], asyncio.Future[str]] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        runner = web.ServerRunner(web.Server(self._take, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()

    def expect(self, account: str, profile: str, event: str) -> asyncio.Future[str]:
        """An answer of this profile, by this account, to this event."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[account, profile, event] = future
        return future

    async def _take(self, request: web.BaseRequest) -> web.StreamResponse:
        body = (await request.content.read()).decode()
        account = request.path.strip("/")
        posted = Posted(account, request.headers.get("Authorization", ""), body)
        self.posted.append(posted)
        answer = posted.answer
        for event in answer["answers"]:
            waiting = self._waiting.get((account, answer["profile"], event))
            if waiting is not None and not waiting.done():
                waiting.set_result(answer["text"])
        return web.json_response({"id": f"theirs-{len(self.posted)}"})


class _Webhook:
    def __init__(
        self, talk: Talk, answers: Answers, session: aiohttp.ClientSession, url: str
    ) -> None:
        self._talk = talk
        self._answers = answers
        self._session = session
        self._url = url

    async def ask(self, text: str, event: str, *, seconds: float) -> str:
        seat = self._talk.seat
        self._talk.asked[event] = text
        coming = self._answers.expect(seat.account, seat.profile, event)
        token = Canary(seat.account, "token").word
        async with self._session.post(
            self._url,
            json=_message(seat, text, event),
            headers={"Authorization": f"Bearer {token}"},
        ) as response:
            assert response.status == 202, await response.text()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                self._talk.answered[event] = await coming
        return self._talk.answered.get(event, "")


@asynccontextmanager
async def at_webhook(
    talk: Talk, answers: Answers, session: aiohttp.ClientSession, url: str
) -> AsyncIterator[_Webhook]:
    yield _Webhook(talk, answers, session, url)


def _message(seat: Seat, text: str, event: str) -> dict[str, str]:
    message = {
        "id": event,
        "text": text,
        "user": seat.user,
        "user_name": seat.name.word,
        "chat": seat.chat,
        "chat_type": seat.chat_type,
    }
    return message if seat.space is None else {**message, "space": seat.space}
