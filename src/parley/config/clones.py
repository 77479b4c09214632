"""What of a profile's settings and keys goes along to a copy of it, and what stays. Pure."""

from __future__ import annotations

import io
import re
from collections.abc import Collection
from copy import deepcopy
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from parley.config.document import Document, SettingPath, Value, parse_document
from parley.config.env import OPTIONAL_ENV_VARS
from parley.config.env_file import EnvFile
from parley.config.errors import ConfigError, shown
from parley.config.gateway import HOUSE_SETTINGS, MULTIPLEX_VARIABLE
from parley.config.schema import env_name
from parley.config.splice import Unspliceable, remove

__all__ = ["own_keys", "own_settings", "without_setting"]

_PLACES: Final[tuple[SettingPath, ...]] = (
    *(tuple(setting.split(".")) for setting in sorted(HOUSE_SETTINGS)),
    ("multiplex_profiles",),
)
_NOT_TO_COPY: Final = frozenset(
    {MULTIPLEX_VARIABLE, "PARLEY_HOME", "PARLEY_PROFILE", *map(env_name, _PLACES)}
)
# How the name of what one account signs in with ends, on a surface nobody has heard of yet.
_SIGN_IN: Final = re.compile(r"(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET)(?:_\d+)?$")


def own_settings(text: str, file: Path) -> tuple[str, tuple[str, ...]]:
    """The text of a `config.yaml` without what the whole house goes by, and what was left out.

    A text without any of that stays as it is, to the letter.
    """
    document = parse_document(text, file)
    left_out = [path for path in _PLACES if path in document.marks]
    for path in left_out:
        document = without_setting(document, path)
    return document.text, tuple(".".join(path) for path in left_out)


def own_keys(file: EnvFile, provider_keys: Collection[str]) -> tuple[EnvFile, tuple[str, ...]]:
    """The variables of a `.env` that a copy may have too, and the names of the others.

    Two profiles may ask the same provider with one key; they may not be the same bot.
    Comments stay behind: an old token may stand in one.
    """
    lines = tuple(
        line
        for line in file.lines
        if line.name is not None and (line.name in provider_keys or _may_go_along(line.name))
    )
    kept = EnvFile(lines)
    return kept, tuple(name for name in file.values if name not in kept.values)


def _may_go_along(name: str) -> bool:
    if name in _NOT_TO_COPY:
        return False
    known = OPTIONAL_ENV_VARS.get(name)
    if known is not None:
        return known["category"] != "messaging"
    return _SIGN_IN.search(name.upper()) is None


def without_setting(document: Document, path: SettingPath) -> Document:
    """In place where that can be done, else with the whole document written anew."""
    expected = deepcopy(document.values)
    _take_out(expected, path)
    for attempt in (_spliced, _rewritten):
        text = attempt(document, path)
        if text is None:
            continue
        try:
            changed = parse_document(text, document.file)
        except ConfigError:
            continue
        if _filled(changed.values) == _filled(expected):
            return changed
    raise ConfigError(
        f"Cannot take `{'.'.join(path)}` out of {shown(document.file)} as it is written there; "
        "edit the file by hand."
    )


def _spliced(document: Document, path: SettingPath) -> str | None:
    try:
        return remove(document, path)
    except Unspliceable:
        return None


def _rewritten(document: Document, path: SettingPath) -> str | None:
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 10_000
    written = io.StringIO()
    try:
        values = yaml.load(document.text)
        _take_out(values, path)
        yaml.dump(values, written)
    except (YAMLError, ValueError, TypeError, AttributeError, LookupError):
        return None
    return written.getvalue()


def _take_out(values: dict[str, Value], path: SettingPath) -> None:
    here = values
    for name in path[:-1]:
        below = here[name]
        assert isinstance(below, dict)
        here = below
    del here[path[-1]]


def _filled(values: dict[str, Value]) -> dict[str, Value]:
    """Without the sections that have nothing in them: they may be written in several ways."""
    return {name: value for name, value in values.items() if value not in (None, {})}
