"""Who answers, by the settings: the built-in agent, or agents elsewhere. Pure."""

from __future__ import annotations

from typing import Final

from parley.config.backends import BackendName
from parley.config.settings import Settings

__all__ = ["who_answers"]

_ALWAYS: Final = ("terminal", "api", "direct")
_ENABLED: Final = ("webhook", "matrix")


def who_answers(settings: Settings) -> frozenset[BackendName]:
    """Every backend that a gateway with these settings would use."""
    surfaces = settings.surfaces
    usual: BackendName = settings.backend or ("proxy" if settings.gateway.proxy_url else "agent")
    served = (*_ALWAYS, *(name for name in _ENABLED if getattr(surfaces, name).enabled))
    return frozenset({usual, *(surfaces.backend_of(name) or usual for name in served)})
