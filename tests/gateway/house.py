"""A home with an agent in it, and gateways that open, close and break off on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from parley.backends.agent import AgentBackend
from parley.backends.base import Backend
from parley.config import Settings
from parley.gateway.app import Gateway, HostedSurface, Parts, already_open
from parley.profiles import Profile
from parley.protocol import ChatMessage
from parley.sessions.key import build_session_key
from parley.storage.contract import Entry, SessionRecord
from parley.storage.sqlite import SqliteStore
from tests.gateway.desk import Desk, at
from tests.servers.scripted_model import ScriptedModel

__all__ = ["House"]

_OURS = ("turn-", "send-", "command-", "lanes", "deliveries", "memory", "compact")


class House:
    """One home. `open` starts a gateway on it; `close` stops it; `crash` does so without a word."""

    def __init__(self, profile: Profile, model: ScriptedModel) -> None:
        self.profile = profile
        self.model = model
        self.desk = Desk()
        self.settings: dict[str, Any] = {
            "model": {"provider": "scripted"},
            "providers": {"scripted": {"base_url": model.base_url, "model": "scripted"}},
            "gateway": {"drain_seconds": 0.2, "port": 0},
        }
        self.desk_type: type[Desk] = Desk
        self.more_surfaces: Sequence[HostedSurface] = ()
        self.gateway: Gateway | None = None
        self.store: SqliteStore | None = None
        self._backend: Backend | None = None
        profile.workspace.mkdir(parents=True, exist_ok=True)

    async def open(self, **sections: Mapping[str, Any]) -> Desk:
        """Start a gateway with these changes to the settings; returns its desk."""
        settings = {
            name: {**self.settings.get(name, {}), **sections.get(name, {})}
            for name in {*self.settings, *sections}
        }
        typed = Settings.model_validate(settings)
        self.desk = self.desk_type()
        self.store = SqliteStore.open(self.profile.database_file)
        self._backend = self.backend_for(typed)
        parts = Parts(typed, self.store, self._backend, [self.desk, *self.more_surfaces])
        gateway = Gateway(typed.gateway, [self.profile], already_open(parts))
        await gateway.start()
        self.gateway = gateway
        return self.desk

    def backend_for(self, settings: Settings) -> Backend:
        """Who answers here."""
        return AgentBackend(self.profile, settings, secret=lambda name: None)

    async def close(self) -> None:
        if self.gateway is not None:
            gateway, self.gateway = self.gateway, None
            await gateway.stop()

    async def crash(self) -> None:
        """End everything at once: nothing is drained, set aside or said good-bye to."""
        assert self.store is not None
        assert self._backend is not None
        self.gateway = None
        ours = [task for task in asyncio.all_tasks() if task.get_name().startswith(_OURS)]
        for task in ours:
            task.cancel()
        await asyncio.gather(*ours, return_exceptions=True)
        await self._backend.close()
        await self.store.close()

    # ── what is stored ──

    async def session(self, chat: str = "one") -> SessionRecord:
        assert self.store is not None
        found = await self.store.session_of(build_session_key(at(chat)))
        assert found is not None
        return found

    async def entries(self, chat: str = "one") -> list[Entry]:
        assert self.store is not None
        return await self.store.transcript((await self.session(chat)).id, whole=True)

    async def transcript(self, chat: str = "one") -> list[ChatMessage]:
        return [entry.message for entry in await self.entries(chat)]

    async def said(self, chat: str = "one") -> list[tuple[str, str]]:
        return [(message.role, message.text) for message in await self.transcript(chat)]

    # ── what the model was asked ──

    def asked(self, number: int = -1) -> list[dict[str, Any]]:
        """The messages of one request to the model, without the system prompt."""
        messages: list[dict[str, Any]] = self.model.requests[number].json["messages"]
        return [message for message in messages if message["role"] != "system"]

    def words(self, number: int = -1) -> list[str]:
        return [str(message["content"]) for message in self.asked(number)]
