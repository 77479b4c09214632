"""A gateway process that remembers people, the people who talk to it, and the model it asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from parley.storage.wording import normal_form
from tests.gateway.conversation import Moments
from tests.servers.callback_receiver import CallbackReceiver
from tests.servers.dying_gateway import COMMAND, choose
from tests.servers.extractor import Extractor
from tests.servers.gateway_process import GatewayProcess, write_config
from tests.servers.ports import free_port
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.surfaces.webhook import TOKEN, Caller

__all__ = ["PEOPLE", "MemoryHouse", "Person", "Planted", "ThinkingModel", "memory_house"]

_COLOURS = ("teal", "amber", "ivory", "maroon", "olive")
_CHATTER = " So it goes from one day to the next, and then we see what comes of it." * 5
_BROKEN = (aiohttp.ClientError, ConnectionError, TimeoutError)


class ThinkingModel(ScriptedModel):
    """The extractor behind a server that tells when it is asked, and thinks as long as it is told.

    `events` are what happened, in order: `turn` or `housekeeping`; `asked`, `told` or `left`, when
    whoever asked went away. `left` has the last message of such a request.
    """

    def __init__(self) -> None:
        super().__init__(Extractor())
        self.thinks = 0.0
        self.events: list[tuple[str, str]] = []
        self.left: list[str] = []
        self.moments = Moments()

    async def _answer(
        self, request: web.BaseRequest, asked: Mapping[str, Any], reply: Reply
    ) -> web.StreamResponse:
        kind = "housekeeping" if is_housekeeping(asked) else "turn"
        self._happened(kind, "asked")
        try:
            if kind == "housekeeping":
                await asyncio.sleep(self.thinks)
            answer = await super()._answer(request, asked, reply)
        except (asyncio.CancelledError, ConnectionError):
            self.left.append(str(asked["messages"][-1]["content"]))
            self._happened(kind, "left")
            raise
        self._happened(kind, "told")
        return answer

    def _happened(self, kind: str, what: str) -> None:
        self.events.append((kind, what))
        self.moments.happened(f"{kind} {what}")
        self._changed.set()


def is_housekeeping(request: Mapping[str, Any]) -> bool:
    return "it is housekeeping" in str(request["messages"][-1]["content"])


@dataclass(frozen=True, slots=True)
class Planted:
    """A message, and the one fact that is in it."""

    id: str
    text: str
    fact: str

    @property
    def form(self) -> str:
        return normal_form(self.fact)


@dataclass(frozen=True, slots=True)
class Person:
    """Speaks in a conversation of their own, alone with the agent or where others read."""

    name: str
    chat: str | None = None

    @property
    def place(self) -> str:
        if self.chat is None:
            return f"person:webhook:{self.name}"
        return f"chat:webhook:group:{self.chat}"

    def words(self, number: int) -> Planted:
        topic = f"badge {self.name}{number}"
        colour = _COLOURS[number % len(_COLOURS)]
        text = f"My {topic} is called {colour}, and I carry it with me.{_CHATTER}"
        return Planted(f"{self.name}/{number}", text, f"Their {topic} is {colour}.")


PEOPLE = (Person("ann"), Person("bob"), Person("cyd"), Person("dan", "hall"), Person("eve", "hall"))


class MemoryHouse:
    """A home, a model and a receiver of answers, which outlive every gateway on that home."""

    def __init__(
        self, gateway: GatewayProcess, model: ThinkingModel, receiver: CallbackReceiver, port: int
    ) -> None:
        self.gateway = gateway
        self.model = model
        self.profile = gateway.profile
        self.planted: dict[str, tuple[Person, Planted]] = {}
        self._receiver = receiver
        self._url = f"http://127.0.0.1:{port}/webhook"

    @property
    def folder(self) -> Path:
        return self.profile.home / "memory"

    async def start(self) -> None:
        self.gateway.start()
        await self.gateway.until_ready()

    # ── talking ──

    async def say(self, person: Person) -> Planted:
        """Said until it is taken, through as many gateways as that needs."""
        words = person.words(sum(who == person for who, _ in self.planted.values()))
        self.planted[words.id] = (person, words)
        where = {} if person.chat is None else {"chat": person.chat, "chat_type": "group"}
        async with Caller(self._url) as caller:
            while True:
                with contextlib.suppress(*_BROKEN):
                    status, told = await caller.say(words.text, words.id, user=person.name, **where)
                    if status in (200, 202):  # 200: it was taken before
                        return words
                    assert status in (404, 503), (status, told)
                await asyncio.sleep(0.02)

    async def ask(self, person: Person, *, seconds: float = 60.0) -> float:
        """Say something and wait for the answer; how long that took."""
        began = time.perf_counter()
        words = await self.say(person)
        async with asyncio.timeout(seconds):
            while not self.answers()[words.id]:
                await asyncio.sleep(0.002)
        return time.perf_counter() - began

    async def talk(self, person: Person, chance: random.Random, over: asyncio.Event) -> None:
        """One thing after the other, with pauses in which the conversation may rest."""
        while not over.is_set():
            await self.ask(person, seconds=120.0)
            await asyncio.sleep(chance.choice((0.0, 0.05, 0.3, 0.6, 1.0)))

    def answers(self) -> Counter[str]:
        """How many answers each message has; one that came again, under its id, is the same."""
        found = {posted.answer["id"]: posted.answer for posted in self._receiver.posted}
        return Counter(id for answer in found.values() for id in answer["answers"])

    # ── what there is ──

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Beside whatever gateway runs there, and after it."""
        file = f"{self.profile.database_file.as_uri()}?mode=ro"
        with closing(sqlite3.connect(file, uri=True, timeout=30)) as db:
            return db.execute(query, values).fetchall()

    async def until_quiet(self, *, seconds: float = 60.0) -> None:
        """All is answered, learned and written."""
        async with asyncio.timeout(seconds):
            while not await self._is_quiet():
                await asyncio.sleep(0.05)

    async def _is_quiet(self) -> bool:
        status = await self.gateway.status()
        if status is None or any(status[name] for name in ("running", "queued", "undelivered")):
            return False
        [(behind,)] = self.read(
            "SELECT (SELECT count(*) FROM session WHERE tend_at IS NOT NULL)"
            " + (SELECT count(*) FROM memory_place WHERE view_version <> version)"
        )
        return not behind and not self.pending_edits()

    def pending_edits(self) -> list[Path]:
        """Files that are not as the store knows them."""
        known = {text for (text,) in self.read("SELECT view FROM memory_place")}
        return [file for file in self.folder.rglob("*.md") if file.read_text() not in known]


@asynccontextmanager
async def memory_house(home: Path) -> AsyncIterator[MemoryHouse]:
    port = free_port()
    async with ThinkingModel() as model, CallbackReceiver() as receiver:
        profile = write_config(home, model_url=model.base_url, gateway={"port": port})
        settings = json.loads(profile.config_file.read_text())
        settings["providers"]["scripted"]["context_window"] = 8_000
        settings["memory"] = {"idle_check_interval": 0.1, "prompt_tokens": 100}
        settings["surfaces"] = {"webhook": {"enabled": True, "callback_url": receiver.url}}
        profile.config_file.write_text(json.dumps(settings))
        profile.env_file.write_text(f"WEBHOOK_TOKEN={TOKEN}\n")
        choose(home, None)
        with GatewayProcess(home, command=COMMAND) as process:
            yield MemoryHouse(process, model, receiver, port)
