"""The contract of a tool: what the model is told, what it may do, and how it is run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from parley.agent.providers.base import ToolSpec
from parley.agent.providers.calls import MALFORMED
from parley.agent.question_text import MOST_SHOWN, describe_call
from parley.agent.tool_records import record_call
from parley.protocol import Attachment, ParleyError, SessionSource, ToolCall, ToolExample

if TYPE_CHECKING:
    from parley.agent.disk_quota import DiskQuota
    from parley.agent.hands import Hands
    from parley.agent.taint import Taint

__all__ = [
    "AnyArguments",
    "Prepared",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "Wanted",
    "tool",
]

Arguments = TypeVar("Arguments", bound=BaseModel)


class ToolError(ParleyError):
    """The tool could not do it; the text is for the model, and says what to do instead."""


class AnyArguments(BaseModel):
    """Whatever the model wrote: for a tool whose own server reads it."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the turn it works for.

    `environment` is all that a child process which the tool starts may know. `call` names this
    very call for ever: it is the same when the turn is begun again after a restart, so what was
    begun under it is not begun twice. `hands` is what the gateway lends; None outside of one.
    `off` is what whoever is answered has turned off, such as `skills.email`. `private` is the
    folder of this conversation's own files, which need not be there yet; tools know it as
    `.parley` of the workspace. `outside` names the sources of text in the context that nobody in
    the conversation wrote; only guarded tools get it. `disk` is how much its files may take.
    """

    profile: str
    workspace: Path
    source: SessionSource
    session_key: str
    async_delivery: bool
    environment: Mapping[str, str]
    call: str = ""
    hands: Hands | None = None
    off: frozenset[str] = frozenset()
    private: Path | None = None
    outside: str = ""
    disk: DiskQuota | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model is told. `attachments` go out with the turn's answer.

    `outside` is that of the `ChatMessage` it becomes.
    """

    text: str
    ok: bool = True
    attachments: tuple[Attachment, ...] = ()
    outside: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A person's word that a call needs. `what` says exactly what it will do.

    Make `what` with `parley.agent.question_text`, so that it reads back to what is done. With a
    `trigger` it is asked of those who have that trigger on in their safety settings; all have at
    first. With `owner`, only an owner may allow it. `reasons` are sentences for the question: why
    it is asked. `once` says why a yes holds for one call only; without it a person may allow the
    call for longer. A yes for longer ends when `binding` changes.
    """

    what: str
    trigger: str | None = None
    owner: bool = False
    reasons: tuple[str, ...] = ()
    once: str = ""
    binding: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call whose arguments were read, once: what is approved is what is run."""

    call: ToolCall
    arguments: BaseModel
    wanted: Wanted | None


@dataclass(frozen=True)
class Tool(Generic[Arguments]):
    """`safe_to_repeat`: running it twice is as good as once, so a lost result is fetched again.
    `parallel`: it may run beside others of the same reply. `needs_approval`: always, or for the
    calls that the function wants a word for. `schema`: what the model is told of the arguments,
    where they are not our own. A result longer than `longest_result` goes to a file. While it
    `waits_for_people` the turn's time stands still. `guard`: for a call that remembers, schedules,
    sends, spends or reaches a new host, what it will do, in words; a person is asked about it when
    the context is tainted. `described_by`: who wrote the description, where that is not ours.
    """

    name: str
    description: str
    arguments: type[Arguments]
    function: Callable[[Arguments, ToolContext], Awaitable[str | ToolResult]]
    safe_to_repeat: bool = False
    parallel: bool = False
    needs_approval: bool | Callable[[Arguments, ToolContext], Wanted | None] = False
    timeout_seconds: float | None = 60.0
    longest_result: int = 20_000
    waits_for_people: bool = False
    schema: Mapping[str, Any] | None = None
    example: ToolExample | None = None
    guard: Callable[[Arguments, ToolContext, Taint], str | None] | None = None
    described_by: str = ""

    @cached_property
    def spec(self) -> ToolSpec:
        schema = self.schema if self.schema is not None else _plain_schema(self.arguments)
        return ToolSpec(self.name, self.description, schema, example=self.example)

    @cached_property
    def size(self) -> int:
        """How many characters the model is told about it."""
        return len(json.dumps(self.spec.parameters)) + len(self.name) + len(self.description)

    def prepare(self, call: ToolCall, context: ToolContext) -> Prepared | ToolResult:
        """Read the arguments; what does not fit becomes a result the model can act on."""
        if MALFORMED in call.arguments:
            wrong = f"The arguments were not valid JSON for {self.name}."
            return ToolResult(wrong, ok=False, outside="")
        try:
            # A copy: what becomes of the model's own words later changes nothing about the call.
            arguments = self.arguments.model_validate(deepcopy(dict(call.arguments)))
            return Prepared(call, arguments, self._wanted(arguments, context))
        except ValidationError as error:
            return ToolResult(f"Wrong arguments: {_explain(error)}", ok=False, outside="")
        except ToolError as error:
            return ToolResult(str(error), ok=False)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Prepare and run; whoever calls this has no use for a person's word."""
        prepared = self.prepare(call, context)
        if isinstance(prepared, ToolResult):
            return prepared
        return await self.run_prepared(prepared, context)

    async def run_prepared(self, prepared: Prepared, context: ToolContext) -> ToolResult:
        """Whatever goes wrong becomes a result the model can act on."""
        arguments = prepared.arguments
        if not isinstance(arguments, self.arguments):
            raise TypeError(f"{self.name} was given arguments of another tool")
        refusal = await record_call(prepared, context)
        if refusal:
            return ToolResult(refusal, ok=False, outside="")
        try:
            async with asyncio.timeout(self.timeout_seconds):
                text = await self.function(arguments, context)
        except ToolError as error:
            return ToolResult(str(error), ok=False)
        except TimeoutError:
            seconds = f"{self.timeout_seconds or 0:.0f}"
            late = f"{self.name} took longer than {seconds} s and was ended."
            return ToolResult(late, ok=False, outside="")
        except OSError as error:
            return ToolResult(f"{self.name} failed: {error.strerror or error}.", ok=False)
        result = text if isinstance(text, ToolResult) else ToolResult(text)
        if len(result.text) <= self.longest_result:
            return result
        from parley.agent.tools.results import set_aside

        short = await asyncio.to_thread(set_aside, result.text, self.longest_result, context)
        return replace(result, text=short)

    def _wanted(self, arguments: Arguments, context: ToolContext) -> Wanted | None:
        if callable(self.needs_approval):
            wanted = self.needs_approval(arguments, context)
        elif self.needs_approval:
            # As they were read: a default is filled in, a blank may be gone.
            given = arguments.model_dump(mode="json", exclude_unset=True)
            wanted = Wanted(describe_call(f"use `{self.name}`", given))
        else:
            return None
        if wanted is not None and len(wanted.what) > MOST_SHOWN:
            raise ToolError(
                "This is too long to be shown to the person who must allow it: do it in smaller "
                "pieces, or write a file and use that."
            )
        return wanted


def tool(
    *,
    safe_to_repeat: bool = False,
    parallel: bool = False,
    needs_approval: bool | Callable[[Any, ToolContext], Wanted | None] = False,
    timeout_seconds: float | None = 60.0,
    longest_result: int = 20_000,
    waits_for_people: bool = False,
    guard: Callable[[Any, ToolContext, Taint], str | None] | None = None,
) -> Callable[[Callable[[Arguments, ToolContext], Awaitable[str | ToolResult]]], Tool[Arguments]]:
    """Make a tool of a function: its name, its docstring, and its first parameter's type."""

    def make(
        function: Callable[[Arguments, ToolContext], Awaitable[str | ToolResult]],
    ) -> Tool[Arguments]:
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
            longest_result=longest_result,
            waits_for_people=waits_for_people,
            guard=guard,
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
