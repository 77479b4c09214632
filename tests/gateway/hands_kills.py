"""A gateway process with a webhook that is killed while agents run commands and delegate tasks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.gateway.workshop import Scenes, begin, delegate, end_processes, run
from tests.servers.callback_receiver import CallbackReceiver
from tests.servers.gateway_process import GatewayProcess, write_config
from tests.servers.ports import free_port
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.surfaces.webhook import TOKEN, Caller
from tests.waiting import until

__all__ = ["Errand", "KilledHouse", "errands", "killed_house", "until_all_answered"]

_BROKEN = (aiohttp.ClientError, ConnectionError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer as a program got it; the same one may come more than once, under its id."""

    id: str
    text: str
    chat: str
    thread: str | None


class KilledHouse:
    """A home, a model and a receiver of answers, which outlive every gateway on that home."""

    def __init__(
        self, gateway: GatewayProcess, model: ScriptedModel, receiver: CallbackReceiver, port: int
    ) -> None:
        self.gateway = gateway
        self.model = model
        self.profile = gateway.profile
        self._receiver = receiver
        self._port = port

    @property
    def workspace(self) -> Path:
        return self.profile.workspace

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        self.gateway.start()
        await self.gateway.until_ready()

    async def kill_and_start(self) -> None:
        self.gateway.kill()
        await self.start()

    async def say(self, text: str, *, chat: str, thread: str | None = None) -> None:
        """Said until it is taken, through as many gateways as that needs."""
        async with Caller(f"{self.address}/webhook") as caller:
            while True:
                with contextlib.suppress(*_BROKEN):
                    status, _ = await caller.say(
                        text, f"{chat}/{text}", chat=chat, thread=thread, chat_type="group"
                    )
                    if status in (200, 202):  # 200: it was taken before
                        return
                    assert status in (404, 503), status
                await asyncio.sleep(0.02)

    def answers(self) -> list[Answered]:
        found: dict[str, Answered] = {}
        for posted in self._receiver.posted:
            told = posted.answer
            one = Answered(told["id"], told["text"], told["chat"], told["thread"])
            assert found.setdefault(one.id, one) == one
        return list(found.values())

    def answers_with(self, word: str) -> list[Answered]:
        return [one for one in self.answers() if word in one.text]

    def tool_results(self, word: str) -> list[dict[str, Any]]:
        """What calls told the model in the turn that began with this word."""
        found = []
        for request in self.model.requests:
            messages = request.json["messages"]
            if any(m["role"] == "user" and word in str(m["content"]) for m in messages):
                found += [json.loads(m["content"]) for m in messages if m["role"] == "tool"]
        return found

    def lines(self, name: str) -> list[str]:
        file = self.workspace / name
        return file.read_text().splitlines() if file.exists() else []

    async def until_quiet(self, *, seconds: float = 60.0) -> None:
        """Nothing runs, waits or is on its way."""
        async with asyncio.timeout(seconds):
            while True:
                status = await self.gateway.status()
                names = ("running", "queued", "undelivered")
                if status is not None and all(status[name] == 0 for name in names):
                    return
                await asyncio.sleep(0.02)

    def running_processes(self) -> list[str]:
        folder = self.profile.home / "processes"
        return [path.parent.name for path in folder.glob("proc_*/keeper.json") if not _over(path)]


def _over(keeper: Path) -> bool:
    return keeper.with_name("exit.json").exists()


@asynccontextmanager
async def killed_house(home: Path, scenes: Scenes, **gateway: object) -> AsyncIterator[KilledHouse]:
    port = free_port()
    async with ScriptedModel(scenes) as model, CallbackReceiver() as receiver:
        profile = write_config(home, model_url=model.base_url, gateway={"port": port, **gateway})
        settings = json.loads(profile.config_file.read_text())
        settings["surfaces"] = {"webhook": {"enabled": True, "callback_url": receiver.url}}
        profile.config_file.write_text(json.dumps(settings))
        profile.env_file.write_text(f"WEBHOOK_TOKEN={TOKEN}\n")
        with GatewayProcess(home) as process:
            try:
                yield KilledHouse(process, model, receiver, port)
            finally:
                process.kill()
                await asyncio.to_thread(end_processes, home)


# ── errands of every kind ──


@dataclass(frozen=True, slots=True)
class Errand:
    """Something asked for in a chat of its own. Doing it appends one line to the file `name`."""

    name: str
    kind: str

    @property
    def chat(self) -> str:
        return f"chat-{self.name}"

    @property
    def thread(self) -> str:
        return f"thread-{self.name}"

    @property
    def asked(self) -> str:
        return f"please {self.kind} for {self.name}"

    @property
    def reports(self) -> bool:
        return self.kind in ("build", "send out")


def errands(scenes: Scenes, chance: random.Random, rounds: int) -> list[Errand]:
    """Commands and tasks, waited for and not; how long each takes is left to chance."""
    made = []
    for number in range(rounds):
        for kind in ("build", "send out", "run", "let do"):
            errand = Errand(f"{kind.split()[0]}{number}", kind)
            pause = chance.uniform(0.05, 0.8)
            command = f"echo line >> {errand.name}; sleep {pause:.2f}; echo made {errand.name}"
            goal = f"your goal is {errand.name}"
            done = Reply(text=f"{errand.name} is begun or done")
            first = {
                "build": begin(command),
                "send out": delegate(goal, background=True),
                "run": run(command),
                "let do": delegate(goal),
            }[kind]
            scenes.when(errand.asked, first, done)
            made.append(errand)
            # The goal stands in the report as well, behind the words of the report.
            scenes.when(f"Task: {goal}", Reply(text=f"report of {errand.name}"))
            scenes.when(goal, run(command), Reply(text=f"result of {errand.name}", delay=pause / 2))
            scenes.when(f"Command: {command}", Reply(text=f"report of {errand.name}"))
    return made


async def until_all_answered(house: KilledHouse, made: list[Errand], *, seconds: float) -> None:
    def answered() -> bool:
        texts = {one.text for one in house.answers()}
        return all(
            f"{each.name} is begun or done" in texts
            and (not each.reports or f"report of {each.name}" in texts)
            for each in made
        )

    await until(answered, seconds=seconds)
