"""A gateway on Matrix that is killed at a place of one's choice, and begins again."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from parley.surfaces.matrix.account import read_account
from tests.servers.gateway_process import ModelProcess
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.person import Person
from tests.surfaces.matrix.processes import MatrixProcess
from tests.surfaces.matrix.turnstile import Hold, Turnstile

__all__ = ["SEND", "Place", "Scene", "a_scene"]

SEND = "/send/m.room."


@dataclass(frozen=True, slots=True)
class Place:
    """Where to kill it: at the request of this kind, so many `times` from now."""

    name: str
    method: str
    part: str
    done: bool
    times: int = 1
    says: str = ""
    often: bool = False
    """One of the few that every run tries; `PARLEY_EVERY_PLACE=1` tries them all."""

    @property
    def is_tried(self) -> bool:
        return self.often or bool(os.environ.get("PARLEY_EVERY_PLACE"))


class Scene:
    """One gateway, and a gate before its homeserver."""

    def __init__(self, synapse: Synapse, gateway: MatrixProcess, gate: Turnstile) -> None:
        self.synapse = synapse
        self.gateway = gateway
        self.gate = gate

    @property
    def agent(self) -> str:
        return self.gateway.user_id

    def hold(self, place: Place, *, hears: str = "") -> Hold:
        return self.gate.hold(
            place.method,
            place.part,
            done=place.done,
            says=place.says,
            hears=hears,
            times=place.times,
        )

    async def kill_at(self, hold: Hold, *, late: bool = False) -> None:
        """Kill it there and start it again. `late`: what it had asked for is done only then."""
        async with asyncio.timeout(60):
            await hold.reached.wait()
        self.gateway.kill()
        if not late:
            hold.lose()
        looks = self.gate.hold("GET", "/joined_rooms", done=True)
        looks.over.set()
        self.gateway.start()
        await self.gateway.until_ready()
        if late:
            async with asyncio.timeout(60):
                await looks.reached.wait()
            hold.over.set()

    def word(self) -> str:
        return f"w{secrets.token_hex(4)}w"

    # ── what is there, as the homeserver tells it ──

    async def rooms_for(self, person: Person) -> Counter[str]:
        """The rooms that the agent made for this person and is in, as `space` and `chat`, and how
        often it has asked the person into them (`invite`).
        """
        found: Counter[str] = Counter()
        token = self._token
        joined = await asyncio.to_thread(
            self.synapse.call, "GET", "/_matrix/client/v3/joined_rooms", token=token
        )
        for room_id in joined["joined_rooms"]:
            path = f"/_matrix/client/v3/rooms/{quote(room_id)}/messages?dir=f&limit=500"
            told = await asyncio.to_thread(self.synapse.call, "GET", path, token=token)
            first = told["chunk"][0]["content"]
            for kind in ("space", "chat"):
                if first.get(f"org.parley.{kind}", {}).get("person") == person.user_id:
                    found[kind] += 1
                    found["invite"] += sum(
                        event["type"] == "m.room.member"
                        and event["state_key"] == person.user_id
                        and event["content"]["membership"] == "invite"
                        for event in told["chunk"]
                    )
        return found

    @property
    def _token(self) -> str:
        account = read_account(self.gateway.profile)
        assert account is not None
        return account.access_token


@asynccontextmanager
async def a_scene(synapse: Synapse, home: Path, **matrix: Any) -> AsyncIterator[Scene]:
    """Its gateway runs already; `matrix` are settings of the surface."""
    async with AsyncExitStack() as stack:
        gate = await stack.enter_async_context(Turnstile.before(synapse.url))
        model = stack.enter_context(ModelProcess())
        gateway = stack.enter_context(MatrixProcess(home))
        await gateway.prepare(synapse, model.base_url, url=gate.url, matrix=matrix)
        began = gate.hold("GET", "/sync", done=True, times=2)
        began.over.set()
        gateway.start()
        async with asyncio.timeout(60):
            await began.reached.wait()
        yield Scene(synapse, gateway, gate)
