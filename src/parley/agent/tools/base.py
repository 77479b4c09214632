"""The contract of a tool: what the model is told, what it may do, and how it is run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from parley.agent.providers.base import ToolSpec
from parley.agent.providers.calls import MALFORMED
from parley.protocol import ParleyError, SessionSource, ToolCall

__all__ = ["Tool", "ToolContext", "ToolError", "ToolResult", "tool"]

Arguments = TypeVar("Arguments", bound=BaseModel)


class ToolError(ParleyError):
    """The tool could not do it; the text is for the model, and says what to do instead."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the turn it works for.

    `environment` is all that a child process which the tool starts may know.
    """

    profile: str
    workspace: Path
    source: SessionSource
    session_key: str
    async_delivery: bool
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ToolResult:
    text: str
    ok: bool = True


@dataclass(frozen=True)
class Tool(Generic[Arguments]):
    """`safe_to_repeat`: running it twice is as good as once, so a lost result is fetched again.
    `parallel`: it may run beside others of the same reply.
    """

    name: str
    description: str
    arguments: type[Arguments]
    function: Callable[[Arguments, ToolContext], Awaitable[str]]
    safe_to_repeat: bool = False
    parallel: bool = False
    needs_approval: bool = False
    timeout_seconds: float = 60.0
    longest_result: int = 20_000

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, _plain_schema(self.arguments))

    @cached_property
    def size(self) -> int:
        """How many characters the model is told about it."""
        return len(json.dumps(self.spec.parameters)) + len(self.name) + len(self.description)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Whatever goes wrong becomes a result the model can act on."""
        if MALFORMED in call.arguments:
            return ToolResult(f"The arguments were not valid JSON for {self.name}.", ok=False)
        try:
            arguments = self.arguments.model_validate(call.arguments)
            async with asyncio.timeout(self.timeout_seconds):
                text = await self.function(arguments, context)
        except ValidationError as error:
            return ToolResult(f"Wrong arguments: {_explain(error)}", ok=False)
        except ToolError as error:
            return ToolResult(str(error), ok=False)
        except TimeoutError:
            seconds = f"{self.timeout_seconds:.0f}"
            return ToolResult(f"{self.name} took longer than {seconds} s and was ended.", ok=False)
        except OSError as error:
            return ToolResult(f"{self.name} failed: {error.strerror or error}.", ok=False)
        return ToolResult(_limit(text, self.longest_result))


def tool(
    *,
    safe_to_repeat: bool = False,
    parallel: bool = False,
    needs_approval: bool = False,
    timeout_seconds: float = 60.0,
) -> Callable[[Callable[[Arguments, ToolContext], Awaitable[str]]], Tool[Arguments]]:
    """Make a tool of a function: its name, its docstring, and its first parameter's type."""

    def make(function: Callable[[Arguments, ToolContext], Awaitable[str]]) -> Tool[Arguments]:
        import typing

        hints = typing.get_type_hints(function)
        first = next(iter(hints))
        return Tool(
            name=function.__name__,
            description=" ".join((function.__doc__ or "").split()),
            arguments=hints[first],
            function=function,
            safe_to_repeat=safe_to_repeat,
            parallel=parallel,
            needs_approval=needs_approval,
            timeout_seconds=timeout_seconds,
        )

    return make


def _plain_schema(model: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON schema without what only costs tokens."""
    schema = model.model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return schema


def _explain(error: ValidationError) -> str:
    faults = (
        f"`{'.'.join(str(part) for part in fault['loc'])}`: {fault['msg']}"
        for fault in error.errors(include_url=False)
    )
    return "; ".join(faults) + "."


def _limit(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n… ({len(text) - longest:,} more characters were left out)"
