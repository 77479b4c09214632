"""A house with the API open, the keys to it, and clients that call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from openai import AsyncOpenAI

from parley.config.api_keys import KeyFile
from parley.config.settings import ApiConfig, GatewayConfig
from parley.profiles import Profile
from parley.protocol import ChatMessage
from parley.surfaces.api.surface import ApiSurface
from tests.gateway.house import House
from tests.servers.api_server import an_api, local_key

__all__ = ["Got", "Served", "a_key", "served_api"]


def a_key(profile: Profile, name: str | None = None, scopes: str = "chat,runs", **more: Any) -> str:
    """The token of a new key."""
    return KeyFile(profile).create(name, scopes.split(","), **more)[1]


@dataclass(frozen=True)
class Got:
    """A response that was read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def session(self) -> str:
        return self.headers["X-Parley-Session-Id"]


class Served:
    """The API of a house. Restarts keep its address, as those of a real gateway do."""

    def __init__(
        self,
        house: House,
        http: aiohttp.ClientSession,
        *,
        config: ApiConfig | None = None,
        network: GatewayConfig | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.house = house
        self.http = http
        self.sections: dict[str, Any] = {}
        self._made = partial(an_api, house.profile, config=config, network=network, host=host)
        self.api: ApiSurface = self._made()
        self._clients = AsyncExitStack()

    @property
    def key(self) -> str:
        return local_key(self.house.profile)

    @property
    def base(self) -> str:
        return f"{self.api.where}/v1"

    async def open(self, **sections: Any) -> None:
        self.sections = sections or self.sections
        self.house.more_surfaces = [self.api]
        await self.house.open(**self.sections)

    async def restart(self) -> None:
        await self.house.close()
        await self.open()

    async def crash(self) -> None:
        """All ends at once; the next gateway has another address."""
        await self.house.crash()
        await self.api.stop()
        self.api = self._made()

    async def close(self) -> None:
        await self._clients.aclose()
        await self.house.close()

    # ── callers ──

    async def client(self, key: str | None = None, **headers: str) -> AsyncOpenAI:
        made = AsyncOpenAI(
            base_url=self.base, api_key=key or self.key, max_retries=0, default_headers=headers
        )
        return await self._clients.enter_async_context(made)

    async def post(
        self,
        path: str,
        body: object,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Got:
        named = {"Authorization": f"Bearer {key or self.key}"} | (headers or {})
        async with self.http.post(self.api.where + path, json=body, headers=named) as answer:
            return Got(answer.status, answer.headers, await answer.read())

    async def get(self, path: str, *, key: str | None = None, **headers: str) -> Got:
        named = {"Authorization": f"Bearer {key or self.key}"} | headers
        async with self.http.get(self.api.where + path, headers=named) as answer:
            return Got(answer.status, answer.headers, await answer.read())

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", urlsplit(self.base).port)

    async def speak(self, wire: bytes) -> bytes:
        """For what no decent client would say; all that is answered before the connection ends."""
        reader, writer = await self.connect()
        try:
            writer.write(wire)
            async with asyncio.timeout(60):
                return await reader.read()
        finally:
            writer.transport.abort()

    # ── what is stored ──

    async def transcripts(self) -> list[list[ChatMessage]]:
        """Of every session over the API, the oldest first."""
        store = self.house.store
        assert store is not None
        found = [one for one in await store.sessions() if "api" in one.lane]
        found.sort(key=lambda one: one.created_at)
        return [
            [entry.message for entry in await store.transcript(one.id, whole=True)] for one in found
        ]

    async def transcript(self, number: int = -1) -> list[ChatMessage]:
        return (await self.transcripts())[number]


@asynccontextmanager
async def served_api(
    house: House,
    *,
    config: ApiConfig | None = None,
    network: GatewayConfig | None = None,
    host: str = "127.0.0.1",
    **sections: Any,
) -> AsyncIterator[Served]:
    async with aiohttp.ClientSession() as http:
        made = Served(house, http, config=config, network=network, host=host)
        await made.open(**sections)
        try:
            yield made
        finally:
            await made.close()
