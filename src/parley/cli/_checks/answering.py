"""Who answers, by the settings: the built-in agent, or agents elsewhere. Pure."""

from __future__ import annotations

from typing import Final

from parley.config.backends import BackendName
from parley.config.settings import Settings

__all__ = ["unused_agents", "usual_backend", "who_answers"]

_ALWAYS: Final = ("terminal", "api", "direct")
_ENABLED: Final = ("webhook", "matrix")


def usual_backend(settings: Settings) -> BackendName:
    """Who answers where a surface names nobody else."""
    return settings.backend or ("proxy" if settings.gateway.proxy_url else "agent")


def unused_agents(settings: Settings) -> dict[BackendName, str]:
    """Remote agents that are named and never asked, each with a sentence that says so."""
    surfaces, usual = settings.surfaces, usual_backend(settings)
    asked = {usual, *(surfaces.backend_of(name) for name in (*_ALWAYS, *_ENABLED))}
    named: dict[BackendName, tuple[str | None, str]] = {
        "proxy": (settings.gateway.proxy_url, "`gateway.proxy_url` (`GATEWAY_PROXY_URL`)"),
        "direct": (settings.direct.url, "`direct.url` (`AGENT_WS_URL`)"),
    }
    return {
        name: f"{setting} names a remote agent that is not used: `{usual}` answers here. To let "
        f"the remote agent answer: `parley config set backend {name}`."
        for name, (url, setting) in named.items()
        if url is not None and name not in asked
    }


def who_answers(settings: Settings) -> frozenset[BackendName]:
    """Every backend that a gateway with these settings would use."""
    surfaces = settings.surfaces
    usual = usual_backend(settings)
    served = (*_ALWAYS, *(name for name in _ENABLED if getattr(surfaces, name).enabled))
    return frozenset({usual, *(surfaces.backend_of(name) or usual for name in served)})
