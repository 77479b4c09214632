"""The map of all settings, drawn from the models: what is at a path, and what it is called."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from parley.config.errors import nearest
from parley.config.settings import BUILT_IN_PROVIDERS, PROVIDER_NAME, Settings

__all__ = ["Leaf", "Section", "Spot", "Table", "env_name", "leaves", "nearest_setting", "spot_at"]

_PREFIX: Final = "PARLEY"


@dataclass(frozen=True, slots=True)
class Section:
    """Settings under fixed names."""

    model: type[BaseModel]


@dataclass(frozen=True, slots=True)
class Table:
    """Sections under names that a person chooses, such as `providers`."""

    model: type[BaseModel]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One setting."""

    field: FieldInfo

    @property
    def is_list(self) -> bool:
        return typing.get_origin(self.field.annotation) is list

    @property
    def may_be_null(self) -> bool:
        return type(None) in typing.get_args(self.field.annotation)

    @property
    def holds_sections(self) -> bool:
        """Whether it is a list of settings with names, such as routes."""
        held = typing.get_args(self.field.annotation)
        return self.is_list and isinstance(held[0], type) and issubclass(held[0], BaseModel)

    @property
    def is_mapping(self) -> bool:
        """Whether plain values stand in it under names that a person chooses."""
        return typing.get_origin(self.field.annotation) is dict

    def entry(self) -> Leaf:
        """One value of a mapping."""
        return Leaf(FieldInfo.from_annotation(typing.get_args(self.field.annotation)[1]))


Spot: TypeAlias = Section | Table | Leaf


def spot_at(path: Sequence[str]) -> Spot | None:
    """What the settings have at `path`, or None when there is no such setting."""
    spot: Spot = Section(Settings)
    for name in path:
        if isinstance(spot, Section):
            found = _children(spot.model).get(name)
            if found is None:
                return None
            spot = found
        elif isinstance(spot, Table) and PROVIDER_NAME.fullmatch(name):
            spot = Section(spot.model)
        elif isinstance(spot, Leaf) and spot.is_mapping and name:
            spot = spot.entry()
        else:
            return None
    return spot


def leaves(names: Iterable[str] = BUILT_IN_PROVIDERS) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    """Every setting with its path; `names` are those under `providers`, the one table that the
    environment may fill.
    """
    return _leaves(Section(Settings), (), tuple(names))


def env_name(path: Sequence[str]) -> str:
    """The environment variable that overrides the setting at `path`."""
    return "_".join((_PREFIX, *(part.upper().replace("-", "_") for part in path)))


def nearest_setting(path: Sequence[str]) -> str | None:
    """The real setting that an unknown `path` was most likely meant to be."""
    known = 0
    while known < len(path) and spot_at(path[: known + 1]) is not None:
        known += 1
    parent, name, rest = path[:known], path[known], path[known + 1 :]
    spot = spot_at(parent)
    if isinstance(spot, Section):
        sibling = nearest(name, _children(spot.model))
        if sibling is not None:
            longer = (*parent, sibling, *rest)
            if rest and spot_at(longer) is None:
                return nearest_setting(longer) or ".".join((*parent, sibling))
            return ".".join(longer)
    by_name = {found[-1]: ".".join(found) for found, _ in leaves(())}
    return by_name.get(path[-1])


@cache
def _children(model: type[BaseModel]) -> dict[str, Spot]:
    return {name: _spot(info) for name, info in model.model_fields.items()}


def _spot(info: FieldInfo) -> Spot:
    annotation = info.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return Section(annotation)
    if typing.get_origin(annotation) is dict:
        held = typing.get_args(annotation)[1]
        if isinstance(held, type) and issubclass(held, BaseModel):
            return Table(held)
    return Leaf(info)


def _leaves(
    spot: Spot, path: tuple[str, ...], names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    if isinstance(spot, Leaf):
        yield path, spot
    elif isinstance(spot, Section):
        for name, child in _children(spot.model).items():
            yield from _leaves(child, (*path, name), names)
    elif path == ("providers",):
        for name in names:
            yield from _leaves(Section(spot.model), (*path, name), names)
