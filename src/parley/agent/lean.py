"""Tools for a small model: a few of them, each with few arguments, one line and an example.

A small model that is told of twenty tools calls the wrong one; told of seven, it does well. Each
lean tool does its work through the full tool of the profile, so what is turned off, needs approval
or is not configured there is so here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from parley.agent.taint import Taint
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import Tool, ToolContext, ToolResult, Wanted
from parley.protocol import ToolExample

__all__ = ["LEAN_NAMES", "LeanTools"]


class _Nothing(Arguments):
    pass


class _Path(Arguments):
    path: str


class _Content(Arguments):
    model_config = ConfigDict(str_strip_whitespace=False)
    path: str
    content: str


class _Command(Arguments):
    model_config = ConfigDict(str_strip_whitespace=False)
    command: str


class _Reminder(Arguments):
    text: str = Field(max_length=2_000)
    when: str


class _Text(Arguments):
    text: str = Field(max_length=500)


@dataclass(frozen=True, slots=True)
class _Lean:
    """A short form of the tool `full`; `fills` makes its arguments from the few of this one."""

    name: str
    full: str
    description: str
    arguments: type[BaseModel]
    fills: Callable[[Any], dict[str, Any]]
    example: ToolExample | None = None


def _same(given: BaseModel) -> dict[str, Any]:
    return given.model_dump()


_FORMS: Final = {
    form.name: form
    for form in (
        _Lean("now", "now", "the date, weekday and time of now", _Nothing, _same),
        _Lean(
            *("list_files", "read_file", "names of the files in a folder; . is the person's own"),
            *(_Path, _same),
        ),
        _Lean(
            *("read_file", "read_file", "what is in a file", _Path, _same),
            ToolExample("What does the letter in mail.txt say?", {"path": "mail.txt"}),
        ),
        _Lean(
            *("write_file", "write_file", "make a file, or write all of it anew", _Content, _same),
        ),
        _Lean(
            *("run_command", "terminal", "run a shell command on this computer", _Command, _same),
            ToolExample("How much memory is free here?", {"command": "free -h"}),
        ),
        _Lean(
            *("remind", "schedule", "remind the person; when: 5m, 3h, tomorrow 18:00", _Reminder),
            lambda given: {"action": "add", "text": given.text, "at": given.when},
            ToolExample(
                "Remind me in half an hour to stretch.", {"text": "Stretch", "when": "30m"}
            ),
        ),
        _Lean(
            *("remember", "memory", "keep a fact that the person asks you to remember", _Text),
            lambda given: {"action": "add", "text": given.text},
        ),
    )
}
LEAN_NAMES: Final = tuple(_FORMS)


class LeanTools:
    """The few tools of a lean prompt, by the names that a profile chose, in that order.

    A name without a short form stands for the tool itself, such as one of an MCP server; a tool
    that is not offered has no short form either.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(dict.fromkeys(names))
        # A short form is made once for each full tool: its schema takes a while to build.
        self._made: dict[str, tuple[Tool[Any], Tool[Any]]] = {}

    def offered(self, tools: Mapping[str, Tool[Any]]) -> dict[str, Tool[Any]]:
        """Those of `tools`, in their short forms."""
        found: dict[str, Tool[Any]] = {}
        for name in self._names:
            form = _FORMS.get(name)
            full = tools.get(name if form is None else form.full)
            if full is not None:
                found[name] = full if form is None else self._short(form, full)
        return found

    def _short(self, form: _Lean, full: Tool[Any]) -> Tool[Any]:
        known = self._made.get(form.name)
        if known is None or known[0] is not full:
            known = self._made[form.name] = full, _short(form, full)
        return known[1]


def _short(form: _Lean, full: Tool[Any]) -> Tool[Any]:
    def filled(given: BaseModel) -> BaseModel:
        values: BaseModel = full.arguments.model_validate(form.fills(given))
        return values

    async def run(given: BaseModel, context: ToolContext) -> str | ToolResult:
        return await full.function(filled(given), context)

    def wanted(given: BaseModel, context: ToolContext) -> Wanted | None:
        asks = full.needs_approval
        return asks(filled(given), context) if callable(asks) else None

    def guard(given: BaseModel, context: ToolContext, taint: Taint) -> str | None:
        assert full.guard is not None
        return full.guard(filled(given), context, taint)

    return replace(
        full,
        name=form.name,
        description=form.description,
        arguments=form.arguments,
        function=run,
        needs_approval=wanted if callable(full.needs_approval) else full.needs_approval,
        schema=None,
        example=form.example,
        guard=None if full.guard is None else guard,
    )
