"""Parley behind Parley: a house whose turns are answered by another one, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from parley.backends.base import Backend
from parley.backends.proxy import ProxyBackend
from parley.config import Settings
from parley.config.settings import ApiConfig
from parley.profiles import Profile
from parley.protocol import ChatMessage
from parley.surfaces.api.surface import ApiSurface
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.servers.api_server import an_api, local_key
from tests.servers.scripted_model import ScriptedModel

__all__ = ["AskingDesk", "Got", "Pair", "ProxyHouse", "ServedHouse"]


@dataclass(frozen=True, slots=True)
class Got:
    """A response that was read to its end."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class AskingDesk(Desk):
    """A desk where a person sees what the agent wants to know."""

    can_ask = True


class ServedHouse(House):
    """A house with an API, which has the same address after each restart."""

    def __init__(
        self, profile: Profile, model: ScriptedModel, *, config: ApiConfig | None = None
    ) -> None:
        super().__init__(profile, model)
        self.api: ApiSurface = an_api(profile, config=config)

    @property
    def url(self) -> str:
        return self.api.where

    @property
    def key(self) -> str:
        return local_key(self.profile)

    async def open(self, **sections: Mapping[str, Any]) -> Desk:
        self.more_surfaces = [self.api]
        return await super().open(**sections)

    async def post(self, body: object) -> Got:
        """Ask it directly, as any program may."""
        headers = {"Authorization": f"Bearer {self.key}"}
        address = f"{self.url}/v1/chat/completions"
        async with (
            aiohttp.ClientSession() as http,
            http.post(address, json=body, headers=headers) as answer,
        ):
            return Got(answer.status, await answer.read())

    async def stored(self) -> list[list[ChatMessage]]:
        """What each conversation of a program came to, the oldest first."""
        assert self.store is not None
        found = [one for one in await self.store.sessions() if ":api:" in one.lane]
        found.sort(key=lambda one: one.created_at)
        return [
            [entry.message for entry in await self.store.transcript(one.id, whole=True)]
            for one in found
        ]

    async def stored_words(self) -> list[tuple[str, str]]:
        """The one conversation that there is."""
        [only] = await self.stored()
        return [(message.role, message.text) for message in only]


class ProxyHouse(ServedHouse):
    """A house whose turns go to `far`; by `far_url` and with `far_key` when they are given."""

    def __init__(
        self,
        profile: Profile,
        model: ScriptedModel,
        far: ServedHouse,
        *,
        config: ApiConfig | None = None,
    ) -> None:
        super().__init__(profile, model, config=config)
        self.far = far
        self.far_url: str | None = None
        self.far_key: str | None = None

    def backend_for(self, settings: Settings) -> Backend:
        url = self.far_url or self.far.url
        return ProxyBackend(self.profile, settings, url=url, secret=self._secret)

    def _secret(self, name: str) -> str | None:
        return (self.far_key or self.far.key) if name == "GATEWAY_PROXY_KEY" else None


@dataclass(frozen=True)
class Pair:
    """`near` is where the person is; `far` is who answers, with `model`."""

    near: ProxyHouse
    far: ServedHouse
    model: ScriptedModel

    async def open(self, **far: Mapping[str, Any]) -> Desk:
        """Both, with these settings at the far end; the near end's desk."""
        await self.far.open(**far)
        return await self.near.open()

    async def close(self) -> None:
        await self.near.close()
        await self.far.close()
