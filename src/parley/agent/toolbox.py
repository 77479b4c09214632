"""All tools of one profile, and which of them a turn is offered."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from parley.agent.disk_quota import DiskLimits, DiskQuota, quota_for
from parley.agent.person import TOOLS_OF_SKILLS, UserSettings
from parley.agent.sandbox import Sandbox, find_sandbox, sandbox_for
from parley.agent.skills import Skill, Skills
from parley.agent.tools import TOOLS, Tool, ToolError
from parley.config.settings import Settings
from parley.profiles import Profile
from parley.protocol import ParleyError, Request

if TYPE_CHECKING:
    from parley.agent.mcp import McpServers
    from parley.agent.tools.files import FileHand

__all__ = ["Toolbox"]

_MCP: Final = "mcp"
_NOT_IN_A_TASK: Final = frozenset(
    {"clarify", "delegate_task", "memory", "schedule", "send_message"}
)
_FIRST_WAIT: Final = 5.0
"""Seconds from the start; a server that hangs delays nobody for longer."""
_MOST_KINDS: Final = 256
_ANYONE: Final = UserSettings()


class Toolbox:
    """Made once for a profile; `close` ends what its tools started."""

    def __init__(
        self,
        profile: Profile,
        settings: Settings,
        *,
        secret: Callable[[str], str | None],
        environment: Mapping[str, str],
    ) -> None:
        self._profile = profile
        self._settings = settings
        self._secret = secret
        sandbox = partial(find_sandbox, settings.terminal.sandbox)
        self.skills = Skills(profile.home / "skills")
        limits = DiskLimits.from_settings(settings.terminal)
        self.disk = quota_for(profile.workspace, profile.session_files, limits)
        self._hand = _file_hand(profile, sandbox, environment, self.disk)
        self._tools = _built_in(settings, secret, self._hand, self.skills, profile.attachments)
        self._servers = _servers(profile, settings, secret, environment)
        self._picked: dict[str, tuple[frozenset[str], dict[str, Tool[Any]]]] = {}
        self._left_out: dict[frozenset[str], tuple[frozenset[str], frozenset[str]]] = {}
        self._probe: asyncio.Task[None] | None = None
        self._pick(settings.agent.tools, "agent.tools")
        for surface, names in settings.agent.surfaces.items():
            self._pick(names, f"agent.surfaces.{surface}")

    def start(self) -> None:
        """Begin to reach MCP servers, and come back at once."""
        if self._servers is not None:
            self._servers.start()

    async def ready(self, needed: Sequence[str] = ()) -> None:
        """Before a turn: find out what the sandbox can do, and wait for MCP servers that start.

        `needed` are tools that the turn has called already: whoever may have them is waited for.
        """
        if self._probe is None:
            # Not waited for: the model is asked first, and only then a command may be run.
            self._probe = asyncio.create_task(self._look_around())
        if self._servers is None or not self._servers.waiting():
            return
        missing = set(needed) - self._tools.keys() - {tool.name for tool in self._servers.tools()}
        await self._servers.ready(None if missing else _FIRST_WAIT)

    def starting(self) -> tuple[str, ...]:
        """The MCP servers that have not answered yet."""
        waiting = self._servers.waiting() if self._servers is not None else ()
        return tuple(f"MCP server `{name}`" for name in waiting)

    async def _look_around(self) -> None:
        """Find out what the sandbox can do, and clear away what is old."""
        with contextlib.suppress(ParleyError):  # told when a command is to be run
            await sandbox_for(self._settings.terminal.sandbox)
        from parley.agent.session_files import tidy_session_files

        home = self._profile
        await asyncio.to_thread(tidy_session_files, home.session_files, home.workspace)

    def offered(
        self, platform: str, request: Request | None, person: UserSettings = _ANYONE
    ) -> Mapping[str, Tool[Any]]:
        """What a turn there may use for this person, in a stable order.

        A program whose own tool must be called gets that call: a call of ours would be no answer.
        """
        if request is not None and request.must_call:
            return {}
        behalf = request.behalf if request is not None else None
        off = person.off
        tools = self._of_surface(platform if behalf is None else behalf.platform, off)
        if behalf is not None:
            tools = {name: each for name, each in tools.items() if name not in _NOT_IN_A_TASK}
        if request is not None and request.allowed is not None:
            tools = {name: each for name, each in tools.items() if name in request.allowed}
        if "memory" in tools and not self._settings.memory.enabled:
            tools = {name: each for name, each in tools.items() if name != "memory"}
        if "web_search" in tools and self._cannot_search():
            tools = {name: each for name, each in tools.items() if name != "web_search"}
        if "read_skill" in tools and not self.listing(off):
            tools = {name: each for name, each in tools.items() if name != "read_skill"}
        return tools

    def _cannot_search(self) -> bool:
        """Whether nobody is set up to search the web. Asked anew: a key may come into `.env`."""
        from parley.agent.tools.web.search import make_searcher

        try:
            make_searcher(self._settings.web, self._secret)
        except ToolError:
            return True
        return False

    def listing(self, off: frozenset[str]) -> Sequence[Skill]:
        """The instructions that are there, without those that somebody has turned off."""
        return tuple(each for each in self.skills.listing() if f"skills.{each.name}" not in off)

    def health(self) -> str | None:
        """What is wrong, in a sentence; None when nothing is known to be."""
        faults = self._servers.health() if self._servers is not None else {}
        return " ".join(f"MCP server `{name}`: {fault}" for name, fault in faults.items()) or None

    async def close(self) -> None:
        if self._probe is not None:
            await asyncio.wait([self._probe])
        await self._hand.close()
        if self._servers is not None:
            await self._servers.close()

    def _of_surface(self, platform: str, off: frozenset[str]) -> Mapping[str, Tool[Any]]:
        agent = self._settings.agent
        names = agent.surfaces.get(platform, agent.tools)
        known = self._picked.get(platform)
        if known is None:
            known = self._picked[platform] = (frozenset(names), self._pick(names, "agent.tools"))
        without, servers = self._turned_off(off)
        ours = known[1]
        if not without.isdisjoint(ours):
            ours = {name: each for name, each in ours.items() if name not in without}
        if self._servers is None or _MCP not in known[0]:
            return ours
        far = self._servers.tools(without=servers)
        return {**ours, **{each.name: each for each in far if each.name not in known[1]}}

    def _turned_off(self, off: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
        """The names of our tools, and of the MCP servers, that go with what is off."""
        known = self._left_out.get(off)
        if known is None:
            if len(self._left_out) >= _MOST_KINDS:
                self._left_out.clear()
            skills = TOOLS_OF_SKILLS.items()
            ours = (name for skill, names in skills if f"skills.{skill}" in off for name in names)
            servers = (
                name
                for name, each in self._settings.mcp.items()
                if f"connectors.{name}" in off or f"skills.{each.skill}" in off
            )
            known = self._left_out[off] = frozenset(ours), frozenset(servers)
        return known

    def _pick(self, names: list[str], setting: str) -> dict[str, Tool[Any]]:
        chosen = {}
        for name in sorted(set(names) - {_MCP}):
            if name not in self._tools:
                near = difflib.get_close_matches(name, [*self._tools, _MCP], n=1)
                meant = f"; did you mean `{near[0]}`?" if near else "."
                raise ParleyError(f"There is no tool `{name}` (setting {setting}){meant}")
            chosen[name] = self._tools[name]
        return chosen


def _built_in(
    settings: Settings,
    secret: Callable[[str], str | None],
    hand: FileHand,
    skills: Skills,
    attachments: Path,
) -> dict[str, Tool[Any]]:
    from parley.agent.tools.clarify import clarify
    from parley.agent.tools.delegate import delegate_task
    from parley.agent.tools.files import file_tools
    from parley.agent.tools.files.sending import send_file_tool
    from parley.agent.tools.memory import memory
    from parley.agent.tools.messages import send_message
    from parley.agent.tools.schedule import schedule
    from parley.agent.tools.skills import skill_tools
    from parley.agent.tools.terminal import terminal_tools
    from parley.agent.tools.todo import todo
    from parley.agent.tools.transcripts import session_search
    from parley.agent.tools.web import web_tools

    found: tuple[Tool[Any], ...] = (
        *(clarify, delegate_task, memory, schedule, send_message, session_search, todo),
        *file_tools(hand),
        send_file_tool(hand, attachments),
        *skill_tools(skills),
        *terminal_tools(settings.terminal),
        *web_tools(settings.web, secret),
        *TOOLS.values(),
    )
    return {each.name: each for each in found}


def _file_hand(
    profile: Profile,
    sandbox: Callable[[], Sandbox],
    environment: Mapping[str, str],
    quota: DiskQuota,
) -> FileHand:
    from parley.agent.tools.files import FileHand

    return FileHand(
        profile.workspace,
        sandbox=sandbox,
        environment=environment,
        private=profile.session_files,
        quota=quota,
    )


def _servers(
    profile: Profile,
    settings: Settings,
    secret: Callable[[str], str | None],
    environment: Mapping[str, str],
) -> McpServers | None:
    wanted = {name: each for name, each in settings.mcp.items() if each.enabled}
    if not wanted:
        return None
    from parley.agent.mcp import McpServers

    return McpServers(profile, wanted, secret=secret, environment=environment)
