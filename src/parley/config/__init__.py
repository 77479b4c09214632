"""Typed settings, their loading and editing, secrets, redaction and logs.

Names are loaded when first used: most commands need few of them, and pydantic takes its time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from parley.config.edit import get_value, preview, set_value, set_values, unset_value
    from parley.config.env import OPTIONAL_ENV_VARS, EnvVar
    from parley.config.errors import ConfigError, Fault
    from parley.config.load import load_house, load_settings
    from parley.config.logs import configure_logging
    from parley.config.redact import Redactor
    from parley.config.secrets import Secrets
    from parley.config.settings import GatewayConfig, Settings

__all__ = [
    "OPTIONAL_ENV_VARS",
    "ConfigError",
    "EnvVar",
    "Fault",
    "GatewayConfig",
    "Redactor",
    "Secrets",
    "Settings",
    "configure_logging",
    "get_value",
    "load_house",
    "load_settings",
    "preview",
    "set_value",
    "set_values",
    "unset_value",
]

_HOMES: Final = {
    "OPTIONAL_ENV_VARS": "env",
    "ConfigError": "errors",
    "EnvVar": "env",
    "Fault": "errors",
    "GatewayConfig": "settings",
    "Redactor": "redact",
    "Secrets": "secrets",
    "Settings": "settings",
    "configure_logging": "logs",
    "get_value": "edit",
    "load_house": "load",
    "load_settings": "load",
    "preview": "edit",
    "set_value": "edit",
    "set_values": "edit",
    "unset_value": "edit",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
