"""Where `gateway.multiplex_profiles` may stand: under `gateway`, at the top, or in a variable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["HOUSE_SETTINGS", "MULTIPLEX_VARIABLE", "gateway_values", "lift_multiplex"]

MULTIPLEX_VARIABLE: Final = "GATEWAY_MULTIPLEX_PROFILES"
_FLAG: Final = "multiplex_profiles"

HOUSE_SETTINGS: Final = frozenset({f"gateway.{name}" for name in (_FLAG, "profiles", "routes")})
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
    given = environ.get(MULTIPLEX_VARIABLE, "").strip()
    if given and isinstance(section, dict):
        section[_FLAG] = given
    return section
