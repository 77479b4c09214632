"""What the settings of the house, in the default profile's `config.yaml`, say of a profile."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from parley.cli._shared import asked_profile
from parley.profiles import Profile, active_profile, default_profile
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.config.settings import RouteSettings

__all__ = ["Mention", "environment_of", "listed", "mentions", "route_words", "routes_to"]


class Mention(NamedTuple):
    """A place in the default profile's settings that names a profile."""

    setting: str
    line: int


def environment_of(profile: Profile) -> Mapping[str, str]:
    """The environment is that of the profile a command is for; others have their `.env` alone."""
    try:
        started_for = asked_profile() or active_profile().name
    except ParleyError:
        return {}
    return os.environ if profile.name == started_for else {}


def routes_to(name: str) -> list[RouteSettings]:
    """The routes of the house that lead to a profile. Raises `ConfigError` when they are broken."""
    from parley.config import load_house

    return [route for route in load_house().routes if route.profile == name]


def route_words(route: RouteSettings) -> str:
    """A route in words: `telegram, chat 42`."""
    parts = route.model_dump(exclude={"profile"}, exclude_none=True)
    platform = parts.pop("platform", None)
    words = [*([platform] if platform else []), *(f"{kind} {id}" for kind, id in parts.items())]
    return ", ".join(words) or "everything"


def mentions(name: str) -> list[Mention]:
    """Every place that names the profile, read from the file as it is."""
    return list(_mentions(name))


def listed(found: list[Mention]) -> str:
    """Where the mentions are, for a person."""
    from parley.config.errors import shown

    where = " and ".join(f"line {mention.line} (`{mention.setting}`)" for mention in found)
    return f"{shown(default_profile().config_file)}, {where}"


def _mentions(name: str) -> Iterator[Mention]:
    from parley.config.document import read_document

    document = read_document(default_profile().config_file)
    gateway = document.values.get("gateway")
    if not isinstance(gateway, dict):
        return
    for setting in ("profiles", "routes"):
        items = gateway.get(setting)
        for index, item in enumerate(items if isinstance(items, list) else []):
            named = item.get("profile") if isinstance(item, dict) else item
            if named == name:
                mark = document.mark(("gateway", setting, str(index), "profile"))
                yield Mention(f"gateway.{setting}", mark.line if mark else 1)
