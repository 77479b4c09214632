"""What an agent can do, as people and scripts see it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from parley.agent.tools.base import Tool
from parley.cli._plain import one_line, plain

__all__ = ["Asks", "Listing", "ServerRow", "SkillRow", "ToolRow", "as_record", "as_text", "row_of"]

Asks: TypeAlias = Literal["no", "sometimes", "yes"]

_LONGEST_WORDS = 200


@dataclass(frozen=True, slots=True)
class ToolRow:
    """`bytes` is how much the model is told of it; `asks`, whether a person is asked first."""

    name: str
    description: str
    asks: Asks
    bytes: int


@dataclass(frozen=True, slots=True)
class ServerRow:
    """An MCP server. `tools` is None when it was not asked for them."""

    name: str
    enabled: bool
    fault: str | None = None
    tools: tuple[ToolRow, ...] | None = None


@dataclass(frozen=True, slots=True)
class SkillRow:
    """A skill, or a folder that holds none that can be used, and why."""

    name: str
    description: str = ""
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """All of it, for one surface or for those that have no list of their own.

    `others` are the surfaces that have one. Whether the tools of MCP servers are offered is `far`.
    """

    profile: str
    surface: str | None
    tools: tuple[ToolRow, ...]
    servers: tuple[ServerRow, ...] = ()
    skills: tuple[SkillRow, ...] = ()
    far: bool = True
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """What the model is told of all tools, as far as they are known."""
        far = [row for server in self.servers for row in server.tools or ()] if self.far else []
        return sum(row.bytes for row in (*self.tools, *far))

    @property
    def broken(self) -> bool:
        return any(server.fault for server in self.servers if server.enabled)


def row_of(tool: Tool[Any], *, far: bool = False) -> ToolRow:
    """A tool of an MCP server asks about every call, where it asks."""
    asks: Asks = "no"
    if tool.needs_approval:
        asks = "sometimes" if callable(tool.needs_approval) and not far else "yes"
    return ToolRow(tool.name, one_line(tool.description, longest=_LONGEST_WORDS), asks, tool.size)


def as_record(listing: Listing) -> dict[str, object]:
    """For scripts."""
    return {
        "profile": listing.profile,
        "surface": listing.surface,
        "bytes": listing.bytes,
        "tools": [asdict(row) for row in listing.tools],
        "mcp_offered": listing.far,
        "mcp": [asdict(server) for server in listing.servers],
        "skills": [asdict(skill) for skill in listing.skills],
        "surfaces": {name: list(tools) for name, tools in listing.others.items()},
        "notes": list(listing.notes),
    }


def as_text(listing: Listing) -> str:
    """For people."""
    parts = [
        "\n".join([_heading(listing), *_rows(listing.tools)]),
        "\n".join(_servers(listing)),
        "\n".join(_skills(listing.skills)),
        "\n".join(_others(listing.others)),
        "\n".join(listing.notes),
    ]
    return plain("\n\n".join(filter(None, parts))) + "\n"


def _heading(listing: Listing) -> str:
    where = "" if listing.surface is None else f" on `{listing.surface}`"
    if not listing.tools and not listing.bytes:
        return f"`{listing.profile}` has no tools{where}."
    return f"Tools of `{listing.profile}`{where}; the model is told {listing.bytes:,} bytes of them"


def _rows(rows: Iterable[ToolRow], indent: str = "  ") -> list[str]:
    shown = [("name", "asks first", "bytes", "")]
    shown += [(row.name, row.asks, str(row.bytes), row.description) for row in rows]
    if len(shown) == 1:
        return []
    first, second, third = (max(len(row[column]) for row in shown) for column in range(3))
    return [
        f"{indent}{name:<{first}}  {asks:<{second}}  {size:>{third}}  {words}".rstrip()
        for name, asks, size, words in shown
    ]


def _servers(listing: Listing) -> Iterable[str]:
    if not listing.servers:
        return
    yield "MCP servers" + ("" if listing.far else ": not offered, `mcp` is not among the tools")
    width = max(len(server.name) for server in listing.servers)
    for server in listing.servers:
        yield f"  {server.name:<{width}}  {_state(server)}"
        yield from _rows(server.tools or (), "    ")


def _state(server: ServerRow) -> str:
    if not server.enabled:
        return "turned off"
    if server.fault and not server.tools:
        return f"FAULT: {server.fault}"
    if server.tools is None:
        return "asked when a gateway runs"
    count = f"{len(server.tools)} tool{'' if len(server.tools) == 1 else 's'}"
    return f"{count}; FAULT: {server.fault}" if server.fault else count


def _skills(skills: Sequence[SkillRow]) -> Iterable[str]:
    if not skills:
        return
    yield "Skills"
    width = max(len(skill.name) for skill in skills)
    for skill in skills:
        words = f"FAULT: {skill.fault}" if skill.fault else skill.description
        yield f"  {skill.name:<{width}}  {words}"


def _others(others: Mapping[str, tuple[str, ...]]) -> Iterable[str]:
    for name, tools in others.items():
        yield f"Other tools on `{name}`: {', '.join(tools) or 'none'}"
