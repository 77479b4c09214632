"""Which settings of a profile from elsewhere are harmless; every other one is held back. Pure.

A setting is harmless when it can neither run, open, send nor spend anything. What is not listed
here, a setting of a later version included, is not.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from parley.config.clones import without_setting
from parley.config.document import Document, SettingPath, Value, parse_document
from parley.config.edit import HEAD
from parley.config.errors import ConfigError
from parley.config.schema import Leaf, spot_at
from parley.config.settings import DEFAULT_TOOLS, LEAN_TOOLS, Settings

__all__ = ["HeldSettings", "is_harmless", "split_settings"]

HeldSettings = dict[SettingPath, Value]

# These are shown and confirmed whole: one line of a server says nothing without the others.
_WHOLE: Final = frozenset({"direct", "mcp", "prices", "providers", "surfaces"})
_MOST_IN_PLACE: Final = 40


def _any(path: SettingPath, value: Value) -> bool:
    return True


def _at_most_default(path: SettingPath, value: Value) -> bool:
    usual = _default(path)
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and isinstance(usual, int | float)
        and 0 < value <= usual
    )


def _one_of(*allowed: str) -> Callable[[SettingPath, Value], bool]:
    return lambda path, value: isinstance(value, str) and value in allowed


def _only_of(*allowed: str) -> Callable[[SettingPath, Value], bool]:
    return lambda path, value: isinstance(value, list) and all(item in allowed for item in value)


def _asks(path: SettingPath, value: Value) -> bool:
    return isinstance(value, dict) and all(answer is True for answer in value.values())


_HARMLESS: Final[dict[str, Callable[[SettingPath, Value], bool]]] = {
    "backend": _one_of("agent"),
    "agent.tools": _only_of(*DEFAULT_TOOLS),
    "agent.prompt": _any,
    "agent.lean_tools": _only_of(*LEAN_TOOLS),
    "agent.max_steps": _at_most_default,
    "agent.turn_seconds": _at_most_default,
    "agent.turn_tokens": _at_most_default,
    "agent.running_tasks": _at_most_default,
    "agent.answer_minutes": _at_most_default,
    "agent.safety": _asks,
    "gateway.busy": _any,
    "sessions.reset": _any,
    "sessions.idle_minutes": _any,
    "sessions.daily_at": _any,
    "sessions.timezone": _any,
    "sessions.reset_triggers": _any,
    "sessions.reset_notice": _any,
    "memory.enabled": _any,
    "memory.learn": _any,
    "memory.groups": _any,
    "terminal.sandbox": _one_of("auto", "required"),
    "terminal.timeout_seconds": _at_most_default,
    "terminal.memory_mb": _at_most_default,
    "terminal.processes": _at_most_default,
    "terminal.file_mb": _at_most_default,
    "terminal.workspace_mb": _at_most_default,
    "terminal.person_mb": _at_most_default,
    "terminal.workspace_files": _at_most_default,
    "terminal.output_kb": _at_most_default,
    "web.fetch_mb": _at_most_default,
    "web.timeout_seconds": _at_most_default,
    "plan.name": _any,
    "plan.tokens": _any,
    "budgets.timezone": _any,
    **{
        f"budgets.{whose}.{limit}": _any
        for whose in ("profile", "user", "session")
        for limit in ("day_tokens", "month_tokens", "day_money", "month_money")
    },
    "log.level": _any,
}


def is_harmless(path: SettingPath, value: Value) -> bool:
    """Whether a setting may be taken over from a stranger without a question."""
    rule = _HARMLESS.get(".".join(path))
    if rule is not None and rule(path, value):
        return True
    usual = _default(path)
    return usual is not _NO_DEFAULT and type(usual) is type(value) and usual == value


def split_settings(text: str, file: Path) -> tuple[str, HeldSettings]:
    """The text of a `config.yaml` with the harmless settings alone, and the others.

    Raises `ConfigError` when it cannot be read in one way only.
    """
    document = parse_document(text, file)
    if document.faults:
        raise ConfigError(*document.faults)
    held = dict(_risky(document))
    kept = _cut(document, held)
    if kept is None:
        kept = parse_document(_written(document, held), file)
    if kept.faults or any(_risky(kept)):
        raise ConfigError("The settings cannot be taken apart.")
    return kept.text, held


def _cut(document: Document, held: HeldSettings) -> Document | None:
    """The document with comments and order; None when that cannot be had."""
    if len(held) > _MOST_IN_PLACE:  # each one has the file read again
        return None
    try:
        for path in held:
            document = without_setting(document, path)
    except (ConfigError, AssertionError, LookupError):
        return None
    return document


def _written(document: Document, held: HeldSettings) -> str:
    kept: dict[str, Value] = {}
    for path, value in _units(document.values, ()):
        if path in held:
            continue
        here = kept
        for name in path[:-1]:
            below = here.setdefault(name, {})
            assert isinstance(below, dict)
            here = below
        here[path[-1]] = value
    if not kept:
        return HEAD
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    written = io.StringIO()
    yaml.dump(kept, written)
    return HEAD + written.getvalue()


def _risky(document: Document) -> Iterator[tuple[SettingPath, Value]]:
    for path, value in _units(document.values, ()):
        if not is_harmless(path, value):
            yield path, value


def _units(values: dict[str, Value], above: SettingPath) -> Iterator[tuple[SettingPath, Value]]:
    """What is judged, shown and confirmed as one: a setting, or all of a server or provider."""
    for name, value in values.items():
        path = (*above, name)
        whole = path[0] in _WHOLE and len(path) == (1 if path[0] == "direct" else 2)
        if value is None and not isinstance(spot_at(path), Leaf):
            if spot_at(path) is None or whole:
                yield path, value
        elif not isinstance(value, dict) or whole or isinstance(spot_at(path), Leaf | None):
            yield path, value
        else:
            yield from _units(value, path)


_NO_DEFAULT: Final = object()


def _default(path: SettingPath) -> object:
    here: object = _defaults()
    for name in path:
        if not isinstance(here, dict) or name not in here:
            return _NO_DEFAULT
        here = here[name]
    return here


@cache
def _defaults() -> dict[str, object]:
    return Settings().model_dump(mode="json")
