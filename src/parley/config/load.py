"""Settings of a profile: `config.yaml`, above it `.env`, above both the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from pydantic import ValidationError

from parley.config.document import Document, SettingPath, Value, read_document
from parley.config.env_file import read_env_file
from parley.config.errors import ConfigError, Fault, nearest, shown
from parley.config.faults import describe_fault, found
from parley.config.gateway import NAMED_VARIABLES, OTHER_VARIABLES, lift_multiplex
from parley.config.schema import Leaf, Table, env_name, leaves, spot_at
from parley.config.settings import (
    BUILT_IN_PROVIDERS,
    PROVIDER_NAME,
    AuditSettings,
    GatewayConfig,
    Settings,
)
from parley.profiles import Profile, default_profile

__all__ = ["Override", "load_audit", "load_house", "load_settings", "validate"]

_MEANT = {("MATRIX_PLATFORM_BACKEND", "real"): "direct"}
_OF_THE_HOUSE = ("gateway", "multiplex_profiles")


@dataclass(frozen=True, slots=True)
class Override:
    """A setting given by a variable. `origin` says which, for a person."""

    value: str
    origin: str


def load_settings(profile: Profile, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a profile. Raises `ConfigError` when any of them cannot be used.

    Where there is no `config.yaml` every setting has its default; nothing is written.
    """
    document = read_document(profile.config_file)
    return validate(document, _all_overrides(profile, document, environ))


def load_house(environ: Mapping[str, str] = os.environ) -> GatewayConfig:
    """What the default profile says of the gateway as a whole; the rest of its settings may be
    wrong.
    """
    return _load_sections(default_profile(environ), _OF_THE_HOUSE, environ).gateway


def load_audit(house: Profile, environ: Mapping[str, str] = os.environ) -> AuditSettings:
    """What is kept of the audit log of a home; where its settings are wrong, the defaults."""
    try:
        return _load_sections(house, ("audit",), environ).audit
    except ConfigError:
        return AuditSettings()


def _load_sections(house: Profile, names: Sequence[str], environ: Mapping[str, str]) -> Settings:
    document = read_document(house.config_file)
    ours = {name: document.values[name] for name in names if name in document.values}
    overrides = {
        path: override
        for path, override in _all_overrides(house, document, environ).items()
        if path[0] in names
    }
    return validate(replace(document, values=ours, faults=[]), overrides)


def _all_overrides(
    profile: Profile, document: Document, environ: Mapping[str, str]
) -> dict[SettingPath, Override]:
    overrides: dict[SettingPath, Override] = {}
    names = _provider_names(document)
    in_file = read_env_file(profile.env_file).values
    overrides.update(_overrides(in_file, names, f" in {shown(profile.env_file)}"))
    overrides.update(_overrides(environ, names, ""))
    return overrides


def validate(
    document: Document, overrides: Mapping[SettingPath, Override] | None = None
) -> Settings:
    """The settings a document makes, with `overrides` above it; all faults in one `ConfigError`."""
    overrides = overrides or {}
    values = deepcopy(document.values)
    _fill_empty(values)
    lift_multiplex(values)
    for path, override in overrides.items():
        _put(values, path, override.value)
    faults = [*document.faults, *_name_faults(document)]
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            faults.append(describe_fault(found, document, _origins(overrides)))
        raise ConfigError(*sorted(faults, key=_line)) from None
    faults += _missing_providers(settings, document, _origins(overrides))
    if faults:
        raise ConfigError(*sorted(faults, key=_line))
    return settings


def _overrides(
    environ: Mapping[str, str], names: set[str], where: str
) -> Iterator[tuple[SettingPath, Override]]:
    paths = {env_name(path): (path, leaf) for path, leaf in leaves(sorted(names))}
    for variable, text in environ.items():
        if not variable.startswith("PARLEY_") or not text.strip():
            continue
        found = paths.get(variable) or _new_provider(variable)
        if found is not None:
            yield found[0], Override(text.strip(), f"`{variable}`{where}")
    for variable, name in NAMED_VARIABLES.items():
        if text := environ.get(variable, "").strip():
            yield ("gateway", name), Override(text, f"`{variable}`{where}")
    for variable, path in OTHER_VARIABLES.items():
        if text := environ.get(variable, "").strip():
            if path[-1] == "backend":
                text = text.lower()
            given = _MEANT.get((variable, text), text)
            yield path, Override(given, f"`{variable}`{where}")


def _new_provider(variable: str) -> tuple[SettingPath, Leaf] | None:
    """A provider that only the environment names: `PARLEY_PROVIDERS_<NAME>_<SETTING>`."""
    prefix = env_name(("providers",)) + "_"
    if not variable.startswith(prefix):
        return None
    table = spot_at(("providers",))
    if not isinstance(table, Table):
        return None
    for setting in table.model.model_fields:
        ending = f"_{setting.upper()}"
        name = variable.removeprefix(prefix).removesuffix(ending).lower()
        if variable.endswith(ending) and PROVIDER_NAME.fullmatch(name):
            path = ("providers", name, setting)
            spot = spot_at(path)
            return (path, spot) if isinstance(spot, Leaf) else None
    return None


def _put(values: dict[str, Value], path: SettingPath, text: str) -> None:
    """Set one override, unless the file has something else where its section belongs."""
    here = values
    for name in path[:-1]:
        below = here.setdefault(name, {})
        if not isinstance(below, dict):
            return
        here = below
    spot = spot_at(path)
    if isinstance(spot, Leaf) and spot.is_list:
        here[path[-1]] = [item.strip() for item in text.split(",") if item.strip()]
    else:
        here[path[-1]] = text


def _fill_empty(values: dict[str, Value], path: SettingPath = ()) -> None:
    """A section with nothing under it (all of it a comment, say) is an empty one."""
    for name, value in values.items():
        spot = spot_at((*path, name))
        if isinstance(spot, Leaf) and not spot.is_mapping:
            continue
        if value is None and spot is not None:
            values[name] = {}
        elif isinstance(value, dict):
            _fill_empty(value, (*path, name))


def _provider_names(document: Document) -> set[str]:
    given = document.values.get("providers")
    return {*BUILT_IN_PROVIDERS, *(given if isinstance(given, dict) else ())}


def _name_faults(document: Document) -> Iterator[Fault]:
    for name in sorted(_provider_names(document)):
        if not PROVIDER_NAME.fullmatch(name):
            path = ("providers", name)
            yield document.fault(
                f"a provider's name has only letters, digits, `-` and `_`, not `{name}`.", path
            )


def _missing_providers(
    settings: Settings, document: Document, origins: Mapping[SettingPath, str]
) -> Iterator[Fault]:
    names = {*BUILT_IN_PROVIDERS, *settings.providers}
    wanted = [(("model", "provider"), settings.model.provider)]
    wanted += [(("model", "fallback"), name) for name in settings.model.fallback]
    if settings.memory.provider is not None:
        wanted.append((("memory", "provider"), settings.memory.provider))
    for path, name in wanted:
        if name in names:
            continue
        close = nearest(name, names)
        hint = f"did you mean `{close}`?" if close else f"there are {_listed(names)}."
        # What stands there may be a key: it is not repeated.
        sentence = f"`{'.'.join(path)}` names the unknown provider {found(name)}; {hint}"
        if path in origins:
            yield Fault(f"{origins[path]}: {sentence}", ".".join(path))
        else:
            yield document.fault(sentence, path)


def _origins(overrides: Mapping[SettingPath, Override]) -> dict[SettingPath, str]:
    return {path: override.origin for path, override in overrides.items()}


def _line(fault: Fault) -> int:
    return fault.line or 0


def _listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
