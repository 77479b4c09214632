"""What a program wants of a reply, in the words of each wire format."""

from __future__ import annotations

import re
from typing import Any

from parley.agent.providers.base import ModelRequest, ProviderError

__all__ = [
    "PENALTIES",
    "anthropic_options",
    "check_tool_choice",
    "demands_a_tool",
    "json_schema_of",
    "openai_options",
    "refuse_wishes",
    "refused_wish",
    "unsupported",
]

PENALTIES = ("presence_penalty", "frequency_penalty")

# Without these a reply would be another than the one that was asked for.
_FIRM = {
    "response_format": re.compile(r"response_format|json_schema|json_object|json mode", re.I),
    "tool_choice": re.compile(r"tool_choice|tool choice", re.I),
    "presence_penalty": re.compile(r"presence_?penalty", re.I),
    "frequency_penalty": re.compile(r"frequency_?penalty", re.I),
    "reasoning_effort": re.compile(r"reasoning[_.]?effort", re.I),
    "stop": re.compile(r"\bstop\b"),
}


def check_tool_choice(request: ModelRequest) -> None:
    """Raise `ProviderError` when the one tool that must be called is none of the request's."""
    wanted = request.wishes.tool
    if request.tools and wanted and wanted not in {tool.name for tool in request.tools}:
        raise ProviderError(
            f"There is no tool named {wanted} to be called: name one of those in the request.",
            kind="refused",
        )


def demands_a_tool(request: ModelRequest) -> bool:
    """Whether the reply must be a call of a tool."""
    wishes = request.wishes
    return bool(request.tools) and bool(wishes.tool or wishes.tool_choice == "required")


def unsupported(who: str, wish: str, *, status: int | None = None, why: str = "") -> ProviderError:
    """The error for a wish that `who` cannot fulfil."""
    return ProviderError(
        f"{who} does not offer `{wish}`{f' ({why})' if why else ''}: "
        "ask without it, or choose another model.",
        kind="unsupported",
        status=status,
    )


def refuse_wishes(request: ModelRequest, who: str, *names: str) -> None:
    """Raise `ProviderError` for the first of these wishes that was made. 0 asks for nothing."""
    for name in names:
        if getattr(request.wishes, name):
            raise unsupported(who, name)


def openai_options(request: ModelRequest) -> dict[str, Any]:
    """The wishes as fields of a chat completions request."""
    wishes = request.wishes
    options: dict[str, Any] = {}
    if request.tools:
        if wishes.tool:
            options["tool_choice"] = {"type": "function", "function": {"name": wishes.tool}}
        elif wishes.tool_choice:
            options["tool_choice"] = wishes.tool_choice
        if wishes.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = wishes.parallel_tool_calls
    for name in ("temperature", "top_p", "seed", *PENALTIES, "reasoning_effort"):
        if (value := getattr(wishes, name)) is not None:
            options[name] = value
    if wishes.stop:
        options["stop"] = list(wishes.stop)
    if wishes.response_format is not None:
        options["response_format"] = dict(wishes.response_format)
    return options


def anthropic_options(request: ModelRequest) -> dict[str, Any]:
    """The wishes as fields of a Messages request. There is no seed in it."""
    wishes = request.wishes
    options: dict[str, Any] = {}
    if request.tools and (choice := _anthropic_choice(request)):
        options["tool_choice"] = choice
    if wishes.temperature is not None:
        options["temperature"] = wishes.temperature
    if wishes.top_p is not None:
        options["top_p"] = wishes.top_p
    if wishes.stop:
        options["stop_sequences"] = list(wishes.stop)
    return options


def _anthropic_choice(request: ModelRequest) -> dict[str, Any]:
    wishes = request.wishes
    choice: dict[str, Any] = {}
    if wishes.tool:
        choice = {"type": "tool", "name": wishes.tool}
    elif wishes.tool_choice:
        choice = {"type": {"required": "any"}.get(wishes.tool_choice, wishes.tool_choice)}
    if wishes.parallel_tool_calls is False and choice.get("type") != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return choice


def json_schema_of(request: ModelRequest) -> dict[str, Any] | None:
    """The schema that a reply must keep to; None when it may be any text."""
    wanted = request.wishes.response_format or {}
    match wanted.get("type"):
        case "json_object":
            return {"type": "object"}
        case "json_schema":
            described = wanted.get("json_schema")
            schema = described.get("schema") if isinstance(described, dict) else None
            return dict(schema) if isinstance(schema, dict) else {"type": "object"}
        case _:
            return None


def refused_wish(request: ModelRequest, refusal: str) -> tuple[int, str] | None:
    """The first wish that a server speaks of, and where, of those that cannot be left out."""
    asked = openai_options(request)
    found = ((words.search(refusal), name) for name, words in _FIRM.items() if name in asked)
    return min(((match.start(), name) for match, name in found if match), default=None)
