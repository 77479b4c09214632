"""Run a gateway in this process: for one profile, or for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from parley import __version__, audit
from parley.gateway.home import HomeLock, served_home, socket_path
from parley.profiles import (
    DEFAULT_PROFILE,
    Profile,
    default_profile,
    find_profile,
    profile_scope,
    profiles_to_serve,
)
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.agent.providers.local.pool import ModelPool
    from parley.backends.base import Backend
    from parley.config import Redactor
    from parley.config.backends import BackendName
    from parley.config.settings import AuditSettings, GatewayConfig, Settings
    from parley.gateway.app import Gateway, Parts
    from parley.surfaces.base import Surface
    from parley.surfaces.webhook.hub import WebhookHub

__all__ = ["House", "hosted_gateway", "plan_chat", "plan_gateway", "start_log"]

Kind: TypeAlias = Literal["gateway", "chat"]
_NOTHING: Mapping[str, str] = {}
_MOST_TOLD = 50


@dataclass(frozen=True, slots=True)
class House:
    """What one process serves: whose it is, by which rules, and for whom.

    `home` is the profile whose environment the process's own is; the others have only their files.
    """

    kind: Kind
    home: Profile
    config: GatewayConfig
    profiles: Sequence[Profile]
    level: str = "info"
    notes: list[str] = field(default_factory=list)
    finder: Callable[[], Sequence[Profile]] | None = None
    audit: AuditSettings | None = None
    """What is kept of the audit log, where that was read already."""


def plan_chat(profile: Profile, settings: Settings) -> House:
    """A chat serves its own profile and nothing else."""
    from parley.config import load_house

    multiplex = False
    with contextlib.suppress(ParleyError):  # what is wrong with the house is not the chat's matter
        multiplex = load_house().multiplex_profiles
    config = settings.gateway.model_copy(
        update={"multiplex_profiles": multiplex, "profiles": [], "routes": []}
    )
    kept = settings.audit if profile.is_default else None
    return House("chat", profile, config, [profile], settings.log.level, audit=kept)


def plan_gateway(profile: Profile, *, alone: bool) -> House:
    """Every profile where the house says so; `alone`: this one, whatever the house says."""
    from parley.config import load_house, load_settings

    house = load_house()
    if house.multiplex_profiles and not alone:
        notes: list[str] = []

        def find() -> Sequence[Profile]:
            notes.clear()
            return profiles_to_serve(True, only=house.profiles, report=notes.append)

        served = find()
        home = default_profile()
        level, kept = "info", None
        with contextlib.suppress(ParleyError):
            found = load_settings(home)
            level, kept = found.log.level, found.audit
        return House("gateway", home, house, served, level, notes, find, kept)
    settings = load_settings(profile)
    rules = {
        "multiplex_profiles": house.multiplex_profiles,
        "profiles": [],
        "routes": house.routes if profile.is_default and not house.multiplex_profiles else [],
    }
    config = settings.gateway.model_copy(update=rules)
    [served_profile] = profiles_to_serve(False, active=profile)
    kept = settings.audit if profile.is_default else None
    return House("gateway", profile, config, [served_profile], settings.log.level, audit=kept)


def start_log(home: Profile, *, level: str, others: Sequence[Profile] = ()) -> Redactor:
    """Log into each profile's file, with every secret of all of them struck out."""
    from parley.config import Redactor, Secrets, configure_logging

    redactor = Redactor()
    for profile in {home, *others}:
        environ = os.environ if profile == home else _NOTHING
        # A `.env` that cannot be read is told of elsewhere.
        with contextlib.suppress(ParleyError), profile_scope(profile):
            redactor.learn(Secrets(profile, environ).values())
    configure_logging(home, redactor, apart=bool(others), level=level)
    return redactor


def _secure(profile: Profile) -> list[str]:
    from parley.config.home_permissions import secure_home

    return secure_home(profile)


def _tell_fixed(faults: Sequence[str]) -> None:
    import logging

    for fault in faults:
        logging.getLogger(__name__).warning("%s It is fixed now.", fault)


@asynccontextmanager
async def hosted_gateway(house: House) -> AsyncIterator[Gateway]:
    """The gateway, started; stopped and drained on the way out."""
    fixed = _secure(house.home)
    async with AsyncExitStack() as held:
        if len(house.profiles) > 1 or house.finder is not None:
            held.enter_context(HomeLock(house.home, house.kind, name="house.lock"))
        yield await held.enter_async_context(_running(house, fixed))


@asynccontextmanager
async def _running(house: House, fixed: Sequence[str]) -> AsyncIterator[Gateway]:
    from parley.agent.providers.local.pool import ModelPool
    from parley.gateway.app import Gateway
    from parley.surfaces.webhook.hub import WebhookHub

    redactor = start_log(house.home, level=house.level, others=house.profiles)
    _tell_fixed(fixed)
    models = ModelPool(house.home.logs)
    hub = WebhookHub()

    @asynccontextmanager
    async def opener(profile: Profile) -> AsyncIterator[Parts]:
        async with _opened(profile, house, redactor=redactor, models=models, hub=hub) as parts:
            yield parts

    def profiles() -> Sequence[Profile]:
        return gateway.profiles

    gateway = Gateway(
        house.config,
        house.profiles,
        opener,
        home=house.home,
        surfaces=_house_surfaces(house, hub, profiles),
        notes=house.notes,
        finder=house.finder,
        redact=redactor.text,
    )
    _configure_audit(house)
    await gateway.start()
    about = _about(house, gateway.profiles)
    audit.record(f"{house.kind}.started", profile=house.home, **about)
    try:
        yield gateway
    finally:
        # Who leaves a chat does not want to wait: a running turn goes on at the next start.
        await gateway.stop(at_once=house.kind == "chat")
        audit.record(f"{house.kind}.stopped", profile=house.home)
        await asyncio.to_thread(audit.flush)


def _configure_audit(house: House) -> None:
    from parley.config.load import load_audit

    folder = audit.house_of(house.home)
    audit.configure(folder, house.audit or load_audit(Profile(DEFAULT_PROFILE, folder)))


def _about(house: House, profiles: Sequence[Profile]) -> dict[str, Any]:
    """What is served. The digests tell of settings that were changed by hand meanwhile."""
    digests: dict[str, str] = {}
    for profile in profiles[:_MOST_TOLD]:
        with contextlib.suppress(OSError):
            content = profile.config_file.read_bytes()
            digests[profile.name] = hashlib.sha256(content).hexdigest()[:16]
    served = [profile.name for profile in profiles[:_MOST_TOLD]]
    address = f"{house.config.host}:{house.config.port}" if house.kind == "gateway" else None
    return {"version": __version__, "serves": served, "address": address, "settings": digests}


@asynccontextmanager
async def _opened(
    profile: Profile, house: House, *, redactor: Redactor, models: ModelPool, hub: WebhookHub
) -> AsyncIterator[Parts]:
    """What one profile needs. Holds its home's lock."""
    from parley.cli._checks.answering import unused_agents
    from parley.config import Secrets, load_settings
    from parley.config.files import make_private_directory
    from parley.gateway.serving import Parts
    from parley.storage.sqlite import SqliteStore

    if not profile.is_default:
        find_profile(profile.name)  # it may be gone since
    if profile != house.home:
        _tell_fixed(await asyncio.to_thread(_secure, profile))
    environ = os.environ if profile == house.home else _NOTHING
    settings = await asyncio.to_thread(load_settings, profile, environ)
    secrets = Secrets(profile, environ)
    redactor.learn(secrets.values())
    async with served_home(profile, house.kind):
        make_private_directory(profile.workspace)
        backend = _backend(profile, settings, secrets.get, models, kind=house.kind)
        try:
            store = await asyncio.to_thread(SqliteStore.open, profile.database_file)
            try:
                if house.kind == "chat":
                    backend.warm()

                def make_again(platforms: Collection[str]) -> list[Surface]:
                    now, held = load_settings(profile, environ), Secrets(profile, environ)
                    redactor.learn(held.values())
                    return _surfaces(profile, now, held.get, platforms, house=house, hub=hub)

                surfaces = _surfaces(profile, settings, secrets.get, None, house=house, hub=hub)
                notes = tuple(unused_agents(settings).values())
                yield Parts(settings, store, backend, surfaces, make_again, notes)
            finally:
                await store.close()
        finally:
            await backend.close()


def _backend(
    profile: Profile,
    settings: Settings,
    secret: Callable[[str], str | None],
    models: ModelPool,
    *,
    kind: Kind,
) -> Backend:
    """Who answers: one for the profile, and another on the surfaces whose settings say so."""
    from parley.backends.choice import Backends
    from parley.cli._checks.answering import usual_backend

    made: dict[BackendName, Backend] = {}

    def get(name: BackendName) -> Backend:
        if name not in made:
            made[name] = _named_backend(name, profile, settings, secret, models)
        return made[name]

    surfaces = settings.surfaces
    usual = usual_backend(settings)
    served = ["terminal"]
    if kind == "gateway":
        served += ["api", "direct"]
        served += [name for name in ("webhook", "matrix") if getattr(surfaces, name).enabled]
    chosen = {name: surfaces.backend_of(name) or usual for name in served}
    default = get(usual)
    if all(name == usual for name in chosen.values()):
        return default
    return Backends(default, {platform: get(name) for platform, name in chosen.items()})


def _named_backend(
    name: BackendName,
    profile: Profile,
    settings: Settings,
    secret: Callable[[str], str | None],
    models: ModelPool,
) -> Backend:
    match name:
        case "agent":
            from parley.backends.agent import AgentBackend

            return AgentBackend(profile, settings, secret=secret, local_models=models)
        case "proxy":
            from parley.backends.proxy import ProxyBackend

            url = settings.gateway.proxy_url
            if url is None:
                raise ParleyError(
                    "The backend is `proxy`, and nobody is named: set GATEWAY_PROXY_URL or "
                    "`gateway.proxy_url` to the address of the remote agent."
                )
            return ProxyBackend(profile, settings, url=url, secret=secret)
        case "direct":
            from parley.backends.direct import DirectBackend

            url = settings.direct.url
            if url is None:
                raise ParleyError(
                    "The backend is `direct`, and nobody is named: set AGENT_WS_URL or "
                    "`direct.url` to the agent's address, such as ws://127.0.0.1:8642/agent_ws/."
                )
            return DirectBackend(profile, settings, url=url, secret=secret)
        case "mock":
            from parley.backends.mock import MockBackend

            return MockBackend()


def _house_surfaces(
    house: House, hub: WebhookHub, profiles: Callable[[], Sequence[Profile]]
) -> list[Surface]:
    if house.kind == "chat":
        return []
    from parley.surfaces.agent_ws.surface import AgentWsSurface
    from parley.surfaces.api.surface import ApiSurface

    direct = AgentWsSurface()  # first, so that it is stopped before the site that it is served by
    return [
        direct,
        ApiSurface(
            house.config.host,
            house.config.port,
            home=house.home,
            profiles=profiles,
            network=house.config,
            mounted=[hub, direct],
        ),
    ]


def _surfaces(
    profile: Profile,
    settings: Settings,
    secret: Callable[[str], str | None],
    platforms: Collection[str] | None,
    *,
    house: House,
    hub: WebhookHub,
) -> list[Surface]:
    """A chat serves terminals only; a gateway every surface the profile has, or of `platforms`."""
    from parley.surfaces.terminal.surface import TerminalSurface

    surfaces: list[Surface] = []
    if platforms is None or "terminal" in platforms:
        surfaces.append(TerminalSurface(socket_path(profile)))
    wanted = platforms is None or "webhook" in platforms
    if house.kind == "gateway" and wanted and settings.surfaces.webhook.enabled:
        from parley.surfaces.webhook.surface import WebhookSurface

        surfaces.append(
            WebhookSurface(
                hub,
                profile=profile.name,
                token=secret("WEBHOOK_TOKEN"),
                callback_url=settings.surfaces.webhook.callback_url,
                greets=settings.surfaces.webhook.greet,
            )
        )
    wanted = platforms is None or "matrix" in platforms
    if house.kind == "gateway" and wanted and settings.surfaces.matrix.enabled:
        from parley.surfaces.matrix.surface import MatrixSurface

        matrix = settings.surfaces.matrix
        surfaces.append(MatrixSurface(profile, matrix, owners=settings.access.owners))
    return surfaces
