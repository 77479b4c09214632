"""Change `config.yaml` for a person: comments and order stay, and a bad value changes nothing."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from parley import audit
from parley.config.document import Document, SettingPath, Value, parse_document, read_document
from parley.config.errors import ConfigError, shown
from parley.config.faults import found, unknown_setting, wanted
from parley.config.files import locked, replace_text
from parley.config.gateway import HOUSE_SETTINGS
from parley.config.load import load_settings, validate
from parley.config.redact import Redactor
from parley.config.schema import Leaf, Section, Table, spot_at
from parley.config.settings import BUILT_IN_PROVIDERS, ProviderSettings, Settings
from parley.config.splice import Unspliceable, put, remove
from parley.profiles import Profile

__all__ = [
    "HEAD",
    "add_settings",
    "get_value",
    "preview",
    "set_value",
    "set_values",
    "unset_value",
]

HEAD: Final = (
    "# Parley's settings: `parley config get` shows them all, `parley config check` checks them.\n"
    "# Keys and passwords are not for this file: `parley setup` puts them into `.env`.\n"
)

# Of these the audit log holds the value too: they say who may do what, and hold no secret.
_RECORDED: Final = (
    *("access.", "agent.safety", "agent.tools", "audit.", "gateway.host", "gateway.port"),
    *("gateway.public_url", "taint", "terminal.", "web.allow"),
)


def get_value(profile: Profile, path: str, environ: Mapping[str, str] = os.environ) -> Value:
    """What a setting, or a whole section, is now: from the files, the environment or a default."""
    settings = load_settings(profile, environ)
    parts = _split(path)
    values: dict[str, Value] = settings.model_dump(mode="json")
    providers = values["providers"]
    assert isinstance(providers, dict)
    for name in BUILT_IN_PROVIDERS:
        providers.setdefault(name, ProviderSettings().model_dump(mode="json"))
    return _walk(values, parts)


def set_value(profile: Profile, path: str, value: Value) -> Value:
    """Set one setting; a text is understood by the setting's type. Returns what was written.

    `null` is None where the setting may be: it has its default again.
    """
    return set_values(profile, {path: value})[path]


def set_values(profile: Profile, changes: Mapping[str, Value]) -> dict[str, Value]:
    """Make all the changes or none of them. None gives a setting its default again."""
    _refuse_house_settings(profile, changes)
    typed = _all_typed(changes)
    with locked(profile.home):
        document = _with_changes(_sound_document(profile), typed)
        validate(document)
        replace_text(profile.config_file, document.text)
    shown = {path: value for path, value in typed.items() if path.startswith(_RECORDED)}
    audit.record("setting.changed", profile=profile, names=sorted(typed), values=shown)
    return typed


def add_settings(profile: Profile, values: Mapping[SettingPath, Value]) -> None:
    """Write settings, or whole sections, as they are; all of them or none."""
    with locked(profile.home):
        document = _sound_document(profile)
        if not document.text:
            document = parse_document(HEAD, document.file)
        for path, value in values.items():
            document = _changed(document, path, value)
        validate(document)
        replace_text(profile.config_file, document.text)


def _refuse_house_settings(profile: Profile, changes: Mapping[str, Value]) -> None:
    for path in changes:
        if not profile.is_default and path.strip() in HOUSE_SETTINGS:
            raise ConfigError(
                f"`{path}` is for all profiles together: "
                f"parley --profile default config set {path} VALUE"
            )


def preview(profile: Profile, changes: Mapping[str, Value]) -> Settings:
    """What `config.yaml` would say after these changes. Nothing is written."""
    return validate(_with_changes(_sound_document(profile), _all_typed(changes)))


def unset_value(profile: Profile, path: str) -> bool:
    """Give a setting, or a section, its default again; False when the file did not have it."""
    parts = _split(path)
    with locked(profile.home):
        document = _sound_document(profile)
        if document.marks.get(parts) is None:
            return False
        document = _changed(document, parts, None)
        validate(document)
        replace_text(profile.config_file, document.text)
    audit.record("setting.unset", profile=profile, names=[path])
    return True


def _all_typed(changes: Mapping[str, Value]) -> dict[str, Value]:
    return {
        path: None if value is None else _typed(_split(path), value)
        for path, value in changes.items()
    }


def _with_changes(document: Document, changes: Mapping[str, Value]) -> Document:
    if not document.text:
        document = parse_document(HEAD, document.file)
    for path, value in changes.items():
        document = _changed(document, _split(path), value)
    return document


def _split(path: str) -> SettingPath:
    parts = tuple(path.strip().split("."))
    if spot_at(parts) is None or "" in parts:
        raise ConfigError(_sentence(unknown_setting(parts)))
    return parts


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sound_document(profile: Profile) -> Document:
    """The file as it is. One that is broken is not edited: its fault is raised."""
    document = read_document(profile.config_file)
    validate(document)
    return document


def _typed(path: SettingPath, value: Value) -> Value:
    """The value as the setting's own type has it, or an error that says what is wanted."""
    setting = ".".join(path)
    spot = spot_at(path)
    if isinstance(spot, Section | Table):
        known = spot.model.model_fields
        below = f"{setting}.{next(iter(known))}" if isinstance(spot, Section) else f"{setting}.NAME"
        raise ConfigError(f"`{setting}` is a section; set one of its settings, such as `{below}`.")
    assert isinstance(spot, Leaf)
    if spot.may_be_null and value == "null":
        return None
    for text in _texts(value):
        _refuse_odd_text(setting, text)
    if spot.is_mapping and isinstance(value, str):
        raise ConfigError(f"`{setting}` holds names with values; set one, as `{setting}.NAME`.")
    if spot.holds_sections and isinstance(value, str):
        value = _sections(setting, value)
    elif spot.is_list and isinstance(value, str):
        value = [item for item in map(str.strip, value.strip("[] ").split(",")) if item]
    nested: Value = value
    for name in reversed(path):
        nested = {name: nested}
    try:
        settings = Settings.model_validate(nested)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if spot.holds_sections and len(first["loc"]) > len(path):
            number, *names = first["loc"][len(path) :]
            what = ".".join(map(str, names)) or "it"
            fault = f"In `{setting}`, number {int(number) + 1}: {_fault_in(what, first)}"
            raise ConfigError(fault) from None
        if first["type"] == "missing":
            also = ".".join(map(str, first["loc"]))
            fault = f"`{also}` is needed as well: write both into `config.yaml`."
            raise ConfigError(fault) from None
        raise ConfigError(f"`{setting}` wants {wanted(first)}, not {found(value)}.") from None
    return _walk(settings.model_dump(mode="json", exclude_none=spot.holds_sections), path)


def _fault_in(what: str, error: ErrorDetails) -> str:
    match error["type"]:
        case "missing":
            return f"`{what}` is missing."
        case "extra_forbidden":
            return f"there is no `{what}`."
        case _:
            return f"`{what}` wants {wanted(error)}, not {found(error['input'])}."


def _sections(setting: str, text: str) -> Value:
    """A list of settings, written as YAML on one line."""
    with contextlib.suppress(ConfigError):
        value = parse_document(f"value: {text}\n", Path("value")).values.get("value")
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return value
    raise ConfigError(
        f"`{setting}` wants a list such as `[{{profile: coder, chat: '42'}}]`; "
        "a longer one is better written into `config.yaml` itself."
    )


def _walk(values: Value, path: SettingPath) -> Value:
    for depth, name in enumerate(path):
        if not isinstance(values, dict) or name not in values:
            raise ConfigError(f"There is no `{'.'.join(path[: depth + 1])}` in the settings.")
        values = values[name]
    return values


def _texts(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _refuse_odd_text(setting: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"The value for `{setting}` is not valid UTF-8 text.") from None
    if Redactor().text(text) != text:
        raise ConfigError(
            f"The value for `{setting}` looks like a key or password, and those do not belong in "
            "`config.yaml`: use `parley setup` or `parley config set NAME_API_KEY`."
        )


def _changed(document: Document, path: SettingPath, value: Value) -> Document:
    """The document with one change, in place where that can be done; None takes it out."""
    if value is None and document.marks.get(path) is None:
        return document
    expected = deepcopy(document.values)
    _apply(expected, path, value)
    try:
        text = remove(document, path) if value is None else put(document, path, value)
    except Unspliceable:
        text = None
    for attempt in (text, _rewritten(document, path, value)):
        changed = None if attempt is None else _read_back(attempt, document)
        if changed is not None and _same(changed.values, expected):
            return changed
    raise ConfigError(
        f"Cannot change `{'.'.join(path)}` in {shown(document.file)} as it is written there; "
        "edit the file by hand."
    )


def _apply(values: dict[str, Value], path: SettingPath, value: Value) -> None:
    here = values
    for name in path[:-1]:
        below = here.get(name)
        if not isinstance(below, dict):
            if value is None:
                return
            below = here[name] = {}
        here = below
    if value is None:
        here.pop(path[-1], None)
    else:
        here[path[-1]] = value


def _rewritten(document: Document, path: SettingPath, value: Value) -> str | None:
    """The change made on the whole document, for what cannot be changed in place."""
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 10_000
    try:
        loaded = yaml.load(document.text)
        values = {} if loaded is None else loaded
        _apply(values, path, value)
        written = io.StringIO()
        yaml.dump(values, written)
    except (YAMLError, ValueError, TypeError, AttributeError, LookupError):
        return None
    return written.getvalue()


def _read_back(text: str, document: Document) -> Document | None:
    try:
        return parse_document(text, document.file)
    except ConfigError:
        return None


def _same(left: dict[str, Value], right: dict[str, Value]) -> bool:
    """Equal in values, their types and their order; an empty section is one left blank."""
    return repr(_blanked(left)) == repr(_blanked(right))


def _blanked(value: Value) -> Value:
    if isinstance(value, dict):
        return {name: _blanked(item) for name, item in value.items()} or None
    return value
