"""Real processes for the tests of Matrix that kill them: a gateway with an account, and the agent
behind it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parley.surfaces.matrix.account import Account, write_account
from tests.servers.gateway_process import GatewayProcess, environment, write_config
from tests.servers.ports import free_port
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.person import Message, Person

__all__ = ["AgentProcess", "MatrixProcess", "answers_to", "parley", "until_said"]

ANYONE = {"enabled": True, "edit_seconds": 0.1, "allow": ["*:localhost"]}


class _Process(GatewayProcess):
    async def until_quiet(self, *, seconds: float = 60.0) -> None:
        """Nothing is to be answered or sent any more."""
        async with asyncio.timeout(seconds):
            while not _is_quiet(await self.status()):
                await asyncio.sleep(0.02)


class MatrixProcess(_Process):
    """A gateway whose account is registered already; `url` is where it finds the homeserver."""

    user_id = ""
    password = ""

    async def prepare(
        self,
        synapse: Synapse,
        model_url: str,
        *,
        url: str | None = None,
        matrix: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        profile = write_config(self.profile.home, model_url=model_url)
        config = json.loads(profile.config_file.read_text())
        config["surfaces"] = {"matrix": {**ANYONE, **(matrix or {})}}
        profile.config_file.write_text(json.dumps(config))
        lines = [f"{name}={value}\n" for name, value in (env or {}).items()]
        if lines:
            secrets = profile.home / ".env"
            secrets.touch(mode=0o600)
            secrets.write_text("".join(lines))
        made = await asyncio.to_thread(synapse.register, display_name="Parley")
        self.user_id, self.password = made.user_id, made.password
        account = Account(url or synapse.url, made.user_id, made.device_id, made.token, "pickle")
        write_account(profile, account)

    async def fault(self) -> str | None:
        """What it tells of Matrix."""
        status = await self.status()
        assert status is not None
        profiles: Any = status["profiles"]
        [place] = (each for each in profiles[0]["surfaces"] if each["platform"] == "matrix")
        told: str | None = place["fault"]
        return told


class AgentProcess(_Process):
    """`parley agent serve`, always at the same address."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        command = ("-m", "parley", "agent", "serve", "--port", str(self.port))
        super().__init__(home, command=command)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/agent_ws/"

    def prepare(self, model_url: str, **more: Any) -> None:
        profile = write_config(self.profile.home, model_url=model_url)
        config = json.loads(profile.config_file.read_text())
        profile.config_file.write_text(json.dumps({**config, **more}))

    def key(self) -> str:
        return parley(self.profile.home, "keys", "create", "front").stdout.strip()


def _is_quiet(status: dict[str, object] | None) -> bool:
    under_way = ("running", "queued", "undelivered")
    return status is not None and all(status[name] == 0 for name in under_way)


def parley(home: Path, *arguments: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    """The program, as a person runs it."""
    return subprocess.run(
        [sys.executable, "-m", "parley", *arguments],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def answers_to(person: Person, agent: str, room_id: str, word: str) -> list[Message]:
    """What the agent says now in this room with this word in it."""
    return [each for each in person.from_sender(agent, room_id) if word in each.text]


async def until_said(person: Person, agent: str, room_id: str, text: str) -> Message:
    """The message of the agent that says just this, as soon as it does."""
    return await person.wait_for_message(
        lambda each: each in person.from_sender(agent, room_id) and each.text == text, seconds=60
    )
