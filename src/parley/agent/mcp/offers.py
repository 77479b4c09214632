"""What a server offers, made into tools of ours: safe names, short words, sound schemas."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from parley.agent.foreign import one_line
from parley.agent.mcp.limits import McpLimits
from parley.agent.mcp.plan import plain_name
from parley.agent.question_text import describe_call, shown_name
from parley.agent.taint import Taint
from parley.agent.tools.base import AnyArguments, Tool, ToolContext, Wanted
from parley.config.hands import McpServerSettings

if TYPE_CHECKING:
    from mcp_types import Tool as ForeignTool

__all__ = ["Offer", "make_tool", "read_offers", "told_name"]

_LONGEST_NAME: Final = 64
_LONGEST_FOREIGN_NAME: Final = 256
_DEEPEST: Final = 24
_GRACE: Final = 5.0

Call = Callable[[str, dict[str, Any]], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool of a server. `name` is the server's own word for it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool = False
    idempotent: bool = False


def read_offers(
    tools: Iterable[ForeignTool], wanted: Iterable[str], limits: McpLimits
) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    """The tools that can be offered, by name, and the names of those that cannot."""
    only = frozenset(wanted)
    good: dict[str, Offer] = {}
    bad: set[str] = set()
    for tool in tools:
        if only and tool.name not in only:
            continue
        schema = _sound_schema(tool.input_schema, limits)
        if schema is None or not tool.name or len(tool.name) > _LONGEST_FOREIGN_NAME:
            bad.add(one_line(tool.name, longest=_LONGEST_NAME))
            continue
        hints = tool.annotations
        good.setdefault(
            tool.name,
            Offer(
                tool.name,
                one_line(tool.description or tool.title or "", longest=limits.description),
                schema,
                read_only=hints is not None and hints.read_only_hint is True,
                idempotent=hints is not None and hints.idempotent_hint is True,
            ),
        )
    return tuple(good[name] for name in sorted(good)), tuple(sorted(bad))


def told_name(server: str, tool: str) -> str:
    """`<server>__<tool>`; where that would not be safe or not be the only one, a mark is added.

    The plain form can be taken apart in one way only: the server's part neither holds `__` nor
    ends in `_`. So no two tools share a name.
    """
    first, second = plain_name(server), plain_name_of_tool(tool)
    whole = f"{first}__{second}"
    plain = first == server and second == tool and "__" not in first and not first.endswith("_")
    if plain and len(whole) <= _LONGEST_NAME:
        return whole
    mark = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{whole[: _LONGEST_NAME - len(mark) - 1]}_{mark}"


def plain_name_of_tool(tool: str) -> str:
    return "".join(letter if letter.isascii() and _plain(letter) else "-" for letter in tool)[:200]


def make_tool(
    server: str, offer: Offer, settings: McpServerSettings, call: Call
) -> Tool[AnyArguments]:
    """A tool of ours that asks the server. `call` is given the server's own word for it."""

    async def run(arguments: AnyArguments, context: ToolContext) -> str:
        return await call(offer.name, dict(arguments.model_extra or {}))

    trigger = settings.triggers.get(offer.name)
    # A yes for longer is for this program and this offer; what takes their place is asked about.
    whose = [settings.command, settings.args, settings.env, settings.url]
    told = json.dumps([*whose, offer.description, offer.schema], sort_keys=True)
    bound = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
    asks = settings.ask == "always" or (settings.ask == "auto" and not offer.read_only)

    def wanted(arguments: AnyArguments, context: ToolContext) -> Wanted:
        lead = f"use {shown_name(offer.name)} of the MCP server {shown_name(server)}"
        what = describe_call(lead, arguments.model_extra or {})
        return Wanted(what, trigger=None if settings.ask == "always" else trigger, binding=bound)

    def guard(arguments: AnyArguments, context: ToolContext, taint: Taint) -> str | None:
        """A tool that only reads may still reach whatever address it is given."""
        told = json.dumps(dict(arguments.model_extra or {}), ensure_ascii=False, default=str)
        if offer.read_only and taint.allows_all_in(told):
            return None
        return wanted(arguments, context).what

    limit = settings.timeout_seconds
    return Tool(
        name=told_name(server, offer.name),
        description=offer.description,
        arguments=AnyArguments,
        function=run,
        safe_to_repeat=offer.read_only or offer.idempotent,
        parallel=offer.read_only,
        needs_approval=wanted if asks or trigger else False,
        guard=guard,
        described_by="" if settings.trusted else f"the tools of the MCP server {server}",
        timeout_seconds=limit + _GRACE if limit else None,
        schema=offer.schema,
    )


def _plain(letter: str) -> bool:
    return letter.isalnum() or letter in "_-"


def _sound_schema(schema: object, limits: McpLimits) -> Mapping[str, Any] | None:
    """The schema without what only costs tokens; None when no model could be told of it."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return None
    if not isinstance(schema.get("properties", {}), dict):
        return None
    try:
        tidy = _tidy(schema, _DEEPEST)
        size = len(json.dumps(tidy))
    except (ValueError, TypeError, RecursionError):
        return None
    if size > limits.schema or not isinstance(tidy, dict):
        return None
    for costly in ("$schema", "title", "description"):
        tidy.pop(costly, None)
    return {**tidy, "type": "object", "properties": tidy.get("properties", {})}


def _tidy(value: object, depth: int) -> object:
    if depth == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_tidy(item, depth - 1) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: one_line(item, longest=500)
        if name == "description" and isinstance(item, str)
        else _tidy(item, depth - 1)
        for name, item in value.items()
    }
