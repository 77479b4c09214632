"""A profile's home with a workspace, and a registry of real processes in it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from parley.agent.processes import Ended, Matched, Process, Processes, Spec
from parley.agent.sandbox import SandboxMode, find_sandbox
from parley.config.hands import TerminalSettings

__all__ = ["House", "needs_bubblewrap", "open_house", "pids_that_hold"]

LANE = "agent:main:desk:dm:one"

needs_bubblewrap = pytest.mark.skipif(
    not find_sandbox("auto").contains, reason=f"no bubblewrap: {find_sandbox('auto').problem}"
)


@dataclass
class House:
    home: Path
    processes: Processes
    ended: list[Ended] = field(default_factory=list)
    matched: list[Matched] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.home / "workspace"

    def spec(self, command: str, **more: Any) -> Spec:
        return a_spec(self.workspace, command, **more)

    async def start(self, id: str, command: str, **more: Any) -> Process:
        return await self.processes.start(id, self.spec(command, **more))

    async def run(self, id: str, command: str, **more: Any) -> tuple[Process, str]:
        """Start it, wait for its end, and what it printed."""
        more.setdefault("timeout", 20.0)
        await self.start(id, command, **more)
        process = await self.processes.wait(id, 30.0)
        assert not process.is_running
        return process, (await self.processes.output(id, 1_000_000)).text

    def files(self, id: str) -> int:
        """How many bytes its folder holds."""
        return sum(path.stat().st_size for path in (self.home / "processes" / id).iterdir())


def a_spec(workspace: Path, command: str, **more: Any) -> Spec:
    environment = {"PATH": os.environ["PATH"], "HOME": str(workspace)}
    environment |= more.pop("environment", {})
    rest: dict[str, Any] = {"lane": LANE, "workspace": workspace, "cwd": workspace} | more
    return Spec(command, environment=environment, **rest)


@asynccontextmanager
async def open_house(
    home: Path, *, mode: SandboxMode = "auto", **settings: Any
) -> AsyncIterator[House]:
    """Nothing that was started in it is left behind."""
    (home / "workspace").mkdir(parents=True, exist_ok=True)
    processes = Processes(
        home / "processes",
        sandbox=lambda: find_sandbox(mode),
        settings=TerminalSettings(sandbox=mode, **settings),
    )
    house = House(home, processes)
    processes.on_end = house.ended.append
    processes.on_match = house.matched.append
    await processes.open()
    try:
        yield house
    finally:
        for process in processes.listing(LANE):
            if process.is_running:
                await processes.kill(process.id)
        await processes.close()


def pids_that_hold(mark: str) -> list[int]:
    """The processes of this machine with this text in their command line."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                line = (path / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line:
                found.append(int(path.name))
    return found
