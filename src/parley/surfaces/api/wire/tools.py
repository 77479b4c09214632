"""The tools of a program, which of them may be called, and the shape the reply must have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import Field

from parley.protocol import ToolSpec
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.models import Function, WireModel

__all__ = [
    "Choice",
    "JsonSchema",
    "Toolbox",
    "choose",
    "flat_format",
    "tool_choice_object",
    "tool_specs",
]

Mode: TypeAlias = Literal["auto", "none", "required"]


class JsonSchema(WireModel):
    """The shape a reply must have."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$", examples=["weather_report"])
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema", description="A JSON schema.")
    strict: bool | None = None


class NamedTool(WireModel):
    """A tool, by its name."""

    name: str


class AllowedTool(WireModel):
    """A tool that may be called."""

    type: str = "function"
    name: str | None = None
    function: NamedTool | None = None


class AllowedTools(WireModel):
    """The tools that may be called, and whether one of them must be."""

    mode: Literal["auto", "required"]
    tools: list[AllowedTool] = Field(max_length=256, fail_fast=True)


class Choice(WireModel):
    """Which tool must be called: `function` names one, `allowed_tools` some."""

    type: Literal["function", "allowed_tools"]
    name: str | None = None
    function: NamedTool | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[AllowedTool] | None = Field(None, max_length=256, fail_fast=True)
    allowed_tools: AllowedTools | None = None


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools that may be called, and how they are to be chosen."""

    tools: tuple[ToolSpec, ...] = ()
    mode: Mode | None = None
    only: str | None = None


def tool_specs(functions: Iterable[tuple[str, Function]]) -> tuple[ToolSpec, ...]:
    """The tools, each given with the name of its field."""
    specs: dict[str, ToolSpec] = {}
    for param, function in functions:
        if function.name in specs:
            raise BadRequest(f"`{param}`: two tools are called {function.name}.", param=param)
        schema = function.parameters or {"type": "object", "properties": {}}
        described = function.description or ""
        specs[function.name] = ToolSpec(function.name, described, schema, function.strict)
    return tuple(specs.values())


def choose(choice: Mode | Choice | None, tools: tuple[ToolSpec, ...]) -> Toolbox:
    """Apply `tool_choice`, in the form of either API."""
    if choice is None or isinstance(choice, str):
        return Toolbox(tools, choice)
    known = {tool.name for tool in tools}
    if choice.type == "function":
        return Toolbox(tools, only=_name_of(choice, known))
    allowed = choice.allowed_tools
    mode = allowed.mode if allowed else choice.mode
    entries = allowed.tools if allowed else choice.tools
    if mode is None or entries is None:
        raise BadRequest(
            "`tool_choice` of the type allowed_tools needs a `mode` and `tools`.",
            param="tool_choice",
        )
    names = {_name_of(entry, known) for entry in entries}
    return Toolbox(tuple(tool for tool in tools if tool.name in names), mode)


def _name_of(entry: Choice | AllowedTool, known: set[str]) -> str:
    name = entry.function.name if entry.function else entry.name
    if name is None or name not in known:
        raise BadRequest("`tool_choice` names no tool of `tools`.", param="tool_choice")
    return name


def flat_format(response_format: Mapping[str, Any] | None) -> dict[str, Any]:
    """A `response_format` of chat completions as the `text.format` of responses."""
    if response_format is None:
        return {"type": "text"}
    schema = response_format.get("json_schema")
    if schema is None:
        return {"type": response_format["type"]}
    return {"type": "json_schema", "schema": {}, **schema}


def tool_choice_object(mode: Mode | None, only: str | None) -> str | dict[str, str]:
    """A `tool_choice` as responses give it back."""
    return {"type": "function", "name": only} if only else mode or "auto"
