"""An agent on Matrix for tests: a whole gateway in this process, whose model is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from parley.config.surfaces import MatrixSettings
from parley.surfaces.matrix.account import Account, read_account, write_account
from parley.surfaces.matrix.surface import MatrixSurface
from tests.gateway.house import House
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.person import Person
from tests.waiting import until

__all__ = ["Agent", "an_agent", "meet"]


class Agent:
    """A house with a Matrix account; it may be closed or crashed, and opened again."""

    def __init__(self, synapse: Synapse, house: House, settings: Mapping[str, Any]) -> None:
        self.synapse = synapse
        self.house = house
        self.settings = {"enabled": True, "edit_seconds": 0.1, "allow": ["*:localhost"], **settings}
        self.surface: MatrixSurface | None = None
        self.owners: list[str] = []
        self.password = ""

    @property
    def user_id(self) -> str:
        account = read_account(self.house.profile)
        assert account is not None
        return account.user_id

    async def register(self, name: str = "Parley") -> None:
        made = await asyncio.to_thread(self.synapse.register, display_name=name)
        self.password = made.password
        account = Account(self.synapse.url, made.user_id, made.device_id, made.token, "pickle")
        write_account(self.house.profile, account)

    async def open(self, **sections: Mapping[str, Any]) -> None:
        settings = MatrixSettings.model_validate(self.settings)
        self.surface = MatrixSurface(self.house.profile, settings, owners=self.owners)
        self.house.more_surfaces = [self.surface]
        access = {"owners": self.owners}
        await self.house.open(**{"access": access, **sections})
        await until(lambda: self.is_ready)

    @property
    def is_ready(self) -> bool:
        serving = self.surface._serving if self.surface is not None else None
        return serving is not None and serving.is_ready

    async def close(self) -> None:
        await self.house.close()


@asynccontextmanager
async def an_agent(
    synapse: Synapse, house: House, *, owners: tuple[str, ...] = (), **settings: Any
) -> AsyncIterator[Agent]:
    """Served until the block is left. `settings` are those of `surfaces.matrix`."""
    agent = Agent(synapse, house, settings)
    agent.owners = list(owners)
    await agent.register()
    await agent.open()
    try:
        yield agent
    finally:
        await agent.close()


async def meet(agent: Agent, person: Person, *, encrypted: bool = False, **more: Any) -> str:
    """A room of a person with the agent, which has come and said hello."""
    room = await person.create_dm(agent.user_id, encrypted=encrypted, **more)
    await person.wait_for_member(room, agent.user_id)
    await person.wait_for_text(agent.user_id, "!help", room_id=room, seconds=45)
    return room
