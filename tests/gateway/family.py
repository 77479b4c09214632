"""Several real profiles in one home, and gateways that serve some of them or all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parley.backends.agent import AgentBackend
from parley.config import GatewayConfig, load_settings
from parley.gateway.app import Gateway, HostedSurface, Parts
from parley.gateway.home import HomeLock
from parley.gateway.status import ProfileStatus
from parley.profiles import Profile
from parley.storage.contract import SessionRecord
from parley.storage.sqlite import SqliteStore
from tests.gateway.desk import Desk
from tests.servers.scripted_model import ScriptedModel

__all__ = ["Family"]


class Family:
    """`default` and named profiles. `open` starts a gateway, each profile with a desk of its own.

    What a profile brings is said in `brings`; what its opening runs into, in `troubles`.
    """

    def __init__(self, root: Path, model: ScriptedModel, *names: str) -> None:
        self.model = model
        self.profiles = {"default": Profile("default", root)} | {
            name: Profile(name, root / "profiles" / name) for name in names
        }
        self.brings: dict[str, Callable[[], Sequence[Desk]]] = {}
        self.troubles: dict[str, Exception] = {}
        self.ends_badly: dict[str, Exception] = {}
        self.desks: dict[str, Sequence[Desk]] = {}
        self.stores: dict[str, SqliteStore] = {}
        self.gateway: Gateway | None = None
        for name in self.profiles:
            self.configure(name)

    def configure(self, name: str, **sections: Any) -> None:
        """Write the profile's settings; these beside what it takes to be answered."""
        profile = self.profiles[name]
        profile.workspace.mkdir(parents=True, exist_ok=True)
        settings = {
            "model": {"provider": "scripted"},
            "providers": {"scripted": {"base_url": self.model.base_url, "model": "scripted"}},
            **sections,
        }
        profile.config_file.write_text(json.dumps(settings))  # JSON is YAML

    # ── its gateways ──

    async def open(
        self,
        *,
        only: Sequence[str] = (),
        routes: Sequence[dict[str, str]] = (),
        surfaces: Sequence[HostedSurface] = (),
    ) -> Gateway:
        """Serve all of them, or only these, in one gateway."""
        served = [profile for name, profile in self.profiles.items() if not only or name in only]
        return await self._start(
            {"multiplex_profiles": True, "profiles": only, "routes": routes}, served, surfaces
        )

    async def open_alone(self, name: str) -> Desk:
        """Serve one of them, as without the flag; returns its desk."""
        await self._start({}, [self.profiles[name]], ())
        return self.desk(name)

    async def _start(
        self,
        config: dict[str, Any],
        served: Sequence[Profile],
        surfaces: Sequence[HostedSurface],
    ) -> Gateway:
        typed = GatewayConfig.model_validate({"drain_seconds": 0.2, "port": 0, **config})
        home = self.profiles["default"] if typed.multiplex_profiles else served[0]
        gateway = Gateway(typed, served, self._opened, home=home, surfaces=surfaces)
        await gateway.start()
        self.gateway = gateway
        return gateway

    async def close(self) -> None:
        if self.gateway is not None:
            gateway, self.gateway = self.gateway, None
            await gateway.stop()

    @asynccontextmanager
    async def _opened(self, profile: Profile) -> AsyncIterator[Parts]:
        name = profile.name
        if name in self.troubles:
            raise self.troubles[name]
        settings = load_settings(profile, {})
        with HomeLock(profile, "gateway"):
            store = SqliteStore.open(profile.database_file)
            backend = AgentBackend(profile, settings, secret=lambda name: None)
            try:
                self.stores[name] = store
                self.desks[name] = self.brings.get(name, lambda: [Desk()])()
                yield Parts(settings, store, backend, self.desks[name])
            finally:
                await backend.close()
                await store.close()
                if name in self.ends_badly:
                    raise self.ends_badly[name]

    # ── what one of them has ──

    def desk(self, name: str = "default") -> Desk:
        return self.desks[name][0]

    async def sessions(self, name: str) -> list[SessionRecord]:
        return await self.stores[name].sessions()

    async def lanes(self, name: str) -> list[str]:
        return sorted({session.lane for session in await self.sessions(name)})

    async def status(self, name: str) -> ProfileStatus:
        assert self.gateway is not None
        told = (await self.gateway.status()).profiles
        [found] = [profile for profile in told if profile.name == name]
        return found

    def words(self, number: int = -1) -> list[str]:
        """What the model was asked in one request, without the system prompt."""
        messages: list[dict[str, Any]] = self.model.requests[number].json["messages"]
        return [str(message["content"]) for message in messages if message["role"] != "system"]
