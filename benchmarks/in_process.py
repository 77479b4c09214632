"""A gateway in the benchmark's own process, with a surface that has no wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from benchmarks.parties import Bystander
from parley.backends.agent import AgentBackend
from parley.config import load_settings
from parley.config.settings import Settings
from parley.gateway.app import Gateway, Parts, already_open
from parley.profiles import Profile
from parley.storage.sqlite import SqliteStore

__all__ = ["Inside", "gateway_here"]


@dataclass(frozen=True, slots=True)
class Inside:
    """Who talks with it, and what it writes to."""

    surface: Bystander
    store: SqliteStore


@asynccontextmanager
async def gateway_here(
    profile: Profile,
    settings: Settings | None = None,
    backend: AgentBackend | None = None,
    surface: Bystander | None = None,
) -> AsyncIterator[Inside]:
    """With the profile's own settings and agent, unless others are given."""
    settings = settings or load_settings(profile)
    inside = Inside(surface or Bystander(), SqliteStore.open(profile.database_file))
    backend = backend or AgentBackend(profile, settings, secret=lambda _: None)
    parts = Parts(settings, inside.store, backend, [inside.surface])
    gateway = Gateway(settings.gateway, [profile], already_open(parts))
    await gateway.start()
    try:
        yield inside
    finally:
        await gateway.stop()
