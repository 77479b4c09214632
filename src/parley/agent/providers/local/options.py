"""What a program wants of a reply, as fields that llama.cpp's server takes."""

from __future__ import annotations

from typing import Any

from parley.agent.providers.base import ModelRequest
from parley.agent.providers.local.schema import union_schema
from parley.agent.providers.wishes import (
    PENALTIES,
    check_tool_choice,
    demands_a_tool,
    json_schema_of,
    refuse_wishes,
    unsupported,
)

__all__ = ["local_options"]

_WHO = "The local model"


def local_options(request: ModelRequest, *, with_tools: bool) -> dict[str, Any]:
    """The wishes, and the schema that holds an answer with tools to its form.

    Raises `ProviderError` for what this model cannot do.
    """
    check_tool_choice(request)
    wishes = request.wishes
    options: dict[str, Any] = {
        name: value
        for name in ("temperature", "top_p", "seed", *PENALTIES)
        if (value := getattr(wishes, name)) is not None
    }
    refuse_wishes(request, _WHO, "reasoning_effort")
    if not with_tools and demands_a_tool(request):
        raise unsupported(_WHO, "tool_choice", why="it uses no tools")
    if wishes.stop:
        if with_tools:
            raise unsupported(_WHO, "stop", why="not together with tools")
        options["stop"] = list(wishes.stop)
    schema = _schema_with_tools(request) if with_tools else json_schema_of(request)
    if schema is not None:
        options["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return options


def _schema_with_tools(request: ModelRequest) -> dict[str, Any]:
    wishes, tools = request.wishes, request.tools
    if wishes.tool:
        tools = tuple(tool for tool in tools if tool.name == wishes.tool)
    elif wishes.tool_choice == "none":
        tools = ()
    text = json_schema_of(request)
    schema = union_schema(
        tools,
        may_reply=not demands_a_tool(request),
        **({} if text is None else {"text": text}),
    )
    if not schema["anyOf"]:
        raise unsupported(_WHO, "tool_choice", why="no tool of this name can be called here")
    return schema
