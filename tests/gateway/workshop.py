"""What an agent with hands is told to do: calls of its tools, and commands that the test ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from parley.agent.processes.folder import ProcessFolder, reap, terminate
from parley.storage.hands import Work
from tests.gateway.house import House
from tests.servers.scripted_reply import Reply
from tests.waiting import until_now

__all__ = [
    "Scenes",
    "begin",
    "calls",
    "delegate",
    "end_processes",
    "let_go",
    "result_of",
    "run",
    "waiting",
    "works",
]


class Scenes:
    """What the model says, by a word of the newest message: its first reply to it, its second, …

    The same question always has the same answer, so a turn may be begun again.
    """

    def __init__(self) -> None:
        self._scenes: list[tuple[str, tuple[Reply | Callable[[], Reply], ...]]] = []

    def when(self, word: str, *replies: Reply | Callable[[], Reply]) -> None:
        self._scenes.append((word, replies))

    def __call__(self, asked: Mapping[str, Any]) -> Reply:
        text, step = "", 0
        for message in asked["messages"]:
            if message["role"] == "user":
                text, step = str(message["content"]), 0
            elif message["role"] == "assistant":
                step += 1
        for word, replies in self._scenes:
            if word in text:
                reply = replies[min(step, len(replies) - 1)]
                return reply if isinstance(reply, Reply) else reply()
        return Reply(text=f"heard: {text}")


def calls(*made: tuple[str, Mapping[str, Any]], delay: float = 0.0) -> Reply:
    return Reply(tool_calls=made, delay=delay)


def run(command: str, **more: Any) -> Reply:
    return calls(("terminal", {"command": command, **more}))


def begin(command: str, **more: Any) -> Reply:
    """In the background, and its end is to be told."""
    return run(command, background=True, **({"notify_on_complete": True} | more))


def delegate(goal: str, **more: Any) -> Reply:
    return calls(("delegate_task", {"goal": goal, **more}))


def waiting(name: str, then: str = "true") -> str:
    """A command that goes on when there is a file of this name."""
    return f"while [ ! -e {name} ]; do sleep 0.02; done; {then}"


def let_go(house: House, name: str) -> None:
    (house.profile.workspace / name).touch()


def result_of(house: House) -> dict[str, Any]:
    """What the newest call told the model."""
    for request in reversed(house.model.requests):
        results = [each for each in request.json["messages"] if each["role"] == "tool"]
        if results:
            found: dict[str, Any] = json.loads(results[-1]["content"])
            return found
    raise AssertionError("no call was answered")


async def works(house: House) -> list[Work]:
    assert house.store is not None
    return await house.store.works(running=False)


def end_processes(home: Path) -> None:
    """Whatever still runs for this home ends."""
    folder = home / "processes"
    for path in folder.iterdir() if folder.is_dir() else ():
        found = ProcessFolder(path)
        pid = found.keeper_pid()
        if pid is not None:
            terminate(found)
            until_now(partial(_is_gone, found, pid))


def _is_gone(folder: ProcessFolder, pid: int) -> bool:
    reap(pid)
    return folder.keeper_pid() is None
