"""Where settings of the gateway may stand besides `gateway`: at the top, or in a variable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from parley.config.backends import AGENT_WS_VARIABLE
from parley.config.proxy import PROXY_URL_VARIABLE

__all__ = [
    "HOUSE_SETTINGS",
    "MULTIPLEX_VARIABLE",
    "NAMED_VARIABLES",
    "OTHER_VARIABLES",
    "gateway_values",
    "lift_multiplex",
]

MULTIPLEX_VARIABLE: Final = "GATEWAY_MULTIPLEX_PROFILES"
_FLAG: Final = "multiplex_profiles"

NAMED_VARIABLES: Final[Mapping[str, str]] = {
    MULTIPLEX_VARIABLE: _FLAG,
    PROXY_URL_VARIABLE: "proxy_url",
}
"""Variables with a name of their own, and the setting under `gateway` that each is above."""

OTHER_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    AGENT_WS_VARIABLE: ("direct", "url"),
    "MATRIX_PLATFORM_BACKEND": ("surfaces", "matrix", "backend"),
}
"""Variables with a name of their own that are above a setting elsewhere."""

HOUSE_SETTINGS: Final = frozenset(
    {f"gateway.{name}" for name in (_FLAG, "profiles", "routes")}
    | {f"audit.{name}" for name in ("keep_mb", "keep_days", "on_failure")}
)
"""What counts in the default profile alone: it is said of all profiles together."""


def lift_multiplex(values: dict[str, Any]) -> None:
    """Move the flag from the top of a configuration to where it belongs, unless it is there too."""
    if _FLAG not in values:
        return
    gateway = values.get("gateway")
    if gateway is None:
        gateway = values["gateway"] = {}
    if isinstance(gateway, dict):
        flag = values.pop(_FLAG)
        gateway.setdefault(_FLAG, flag)


def gateway_values(record: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The `gateway` section of a whole configuration, or the section itself as it was given."""
    from parley.config.settings import Settings

    values = dict(record)
    nested = values.get("gateway")
    if values.keys() & Settings.model_fields.keys() or not values.keys() - {_FLAG}:
        values["gateway"] = dict(nested) if isinstance(nested, Mapping) else nested
        lift_multiplex(values)
        section: dict[str, Any] = values["gateway"] or {}
    else:
        section = values
    for variable, name in NAMED_VARIABLES.items():
        given = environ.get(variable, "").strip()
        if given and isinstance(section, dict):
            section[name] = given
    return section
