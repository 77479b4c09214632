"""Two Parleys joined: one on Matrix, and behind it an agent in another process that answers."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

from tests.gateway.workshop import end_processes
from tests.servers.gateway_process import ModelProcess
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.person import Person
from tests.surfaces.matrix.processes import AgentProcess, MatrixProcess

__all__ = ["Pair", "a_pair", "ask", "come_in", "new_chat"]


class Pair:
    """The gateway that people see, the agent behind it, and the agent's model."""

    def __init__(self, front: MatrixProcess, far: AgentProcess, model: ModelProcess) -> None:
        self.front = front
        self.far = far
        self.model = model

    @property
    def agent(self) -> str:
        return self.front.user_id

    async def asked(self) -> list[dict[str, Any]]:
        """All that the far model was asked."""

        def read() -> list[dict[str, Any]]:
            address = f"http://127.0.0.1:{self.model.port}/requests"
            with urllib.request.urlopen(address, timeout=10) as answer:
                told: list[dict[str, Any]] = json.load(answer)
                return told

        return await asyncio.to_thread(read)

    async def seen_with(self, word: str) -> str:
        """All that the model saw when it was last asked with this word."""
        texts = [json.dumps(each["messages"]) for each in await self.asked()]
        return [text for text in texts if word in text][-1]

    async def threads(self) -> set[str]:
        """The threads that the far side has ever had a message in."""

        def read() -> set[str]:
            with closing(sqlite3.connect(self.far.profile.database_file)) as database:
                return {key for (key,) in database.execute("SELECT key FROM lane")}

        return await asyncio.to_thread(read)

    def work(self, name: str) -> str:
        """Has the far agent begin something that ends when `let_go` is called."""
        command = f"while [ ! -e {name} ]; do sleep 0.02; done; echo {name}-is-done"
        call = {"command": command, "background": True, "notify_on_complete": True}
        return f"Begin {name}. [[tool terminal {json.dumps(call)}]]"

    def let_go(self, name: str) -> None:
        (self.far.profile.workspace / name).touch()


@asynccontextmanager
async def a_pair(synapse: Synapse, home: Path, **matrix: Any) -> AsyncIterator[Pair]:
    """Both run when the block begins. The front has no model of its own."""
    async with AsyncExitStack() as stack:
        model = stack.enter_context(ModelProcess())
        far = stack.enter_context(AgentProcess(home / "far"))
        stack.callback(end_processes, home / "far")
        front = stack.enter_context(MatrixProcess(home / "front"))
        far.prepare(model.base_url)
        env = {
            "MATRIX_PLATFORM_BACKEND": "real",
            "AGENT_WS_URL": far.url,
            "AGENT_WS_KEY": await asyncio.to_thread(far.key),
        }
        nobody = "http://127.0.0.1:9/v1"
        await front.prepare(synapse, nobody, env=env, matrix={"encrypt": False, **matrix})
        far.start()
        front.start()
        await far.until_ready()
        await front.until_ready()
        yield Pair(front, far, model)


async def come_in(person: Person, agent: str) -> str:
    """Write to the agent for the first time; the room of one's first chat."""
    hall = await person.create_dm(agent, encrypted=False)
    hello = await person.wait_for_text(agent, "C1", room_id=hall)
    room = room_in(hello.text)
    await person.join(room)
    return room


def room_in(text: str) -> str:
    found = re.search(r"matrix\.to/#/(![^\s?)>]+)", text)
    assert found is not None, text
    return found.group(1)


async def new_chat(person: Person, agent: str, room: str, name: str) -> str:
    await person.send(room, f"!new {name}")
    told = await person.wait_for_message(
        lambda each: each.sender == agent and name in each.text and "matrix.to" in each.text,
        seconds=60,
    )
    made = room_in(told.text)
    await person.join(made)
    return made


async def ask(person: Person, agent: str, room: str, text: str) -> str:
    """Say it, and wait for all of the answer."""
    await person.send(room, text)
    answer = await person.wait_for_message(
        lambda each: each in person.from_sender(agent, room) and each.text == f"echo: {text}",
        seconds=60,
    )
    return answer.event_id
