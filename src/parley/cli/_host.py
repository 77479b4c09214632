"""Run the gateway of a profile in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from parley.gateway.home import HomeLock, socket_path
from parley.profiles import Profile

if TYPE_CHECKING:
    from parley.config.settings import Settings
    from parley.gateway.app import Gateway
    from parley.surfaces.base import Surface

__all__ = ["hosted_gateway", "start_log"]


def start_log(profile: Profile, *, level: str) -> None:
    """Log into the profile's file, with every secret it has struck out."""
    from parley.config import Redactor, Secrets, configure_logging

    configure_logging(profile, Redactor(Secrets(profile).values()), level=level)


@asynccontextmanager
async def hosted_gateway(
    profile: Profile, settings: Settings, *, kind: Literal["gateway", "chat"]
) -> AsyncIterator[Gateway]:
    """The gateway, started; stopped and drained on the way out. Holds the home's lock."""
    with HomeLock(profile, kind):
        start_log(profile, level=settings.log.level)
        from parley.backends.agent import AgentBackend
        from parley.config import Secrets
        from parley.gateway.app import Gateway
        from parley.storage.sqlite import SqliteStore

        backend = AgentBackend(profile, settings, secret=Secrets(profile).get)
        profile.workspace.mkdir(parents=True, exist_ok=True, mode=0o700)
        gateway = Gateway(
            profile,
            settings,
            store=SqliteStore.open(profile.database_file),
            backend=backend,
            surfaces=_surfaces(profile, settings, kind),
        )
        await gateway.start()
        if kind == "chat":
            backend.warm()
        try:
            yield gateway
        finally:
            # Who leaves a chat does not want to wait: a running turn goes on at the next start.
            await gateway.stop(at_once=kind == "chat")


def _surfaces(
    profile: Profile, settings: Settings, kind: Literal["gateway", "chat"]
) -> Sequence[Surface]:
    """A chat serves terminals only; a gateway every surface there is."""
    from parley.surfaces.terminal.surface import TerminalSurface

    surfaces: list[Surface] = [TerminalSurface(socket_path(profile))]
    if kind == "gateway":
        from parley.surfaces.api.surface import ApiSurface

        surfaces.append(ApiSurface(settings.gateway.host, settings.gateway.port))
    return surfaces
