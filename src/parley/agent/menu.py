"""What a person may turn on and off here, and whether anything stands behind it."""

from __future__ import annotations

from parley.agent.person import DEFAULT_SKILLS, TOOLS_OF_SKILLS
from parley.agent.skills import Skills
from parley.config.settings import Settings
from parley.profiles import Profile

__all__ = ["Menu"]

_MCP = "mcp"


class Menu:
    """The skills and connectors of one profile, by name."""

    def __init__(self, profile: Profile, settings: Settings) -> None:
        self._settings = settings
        self._installed = Skills(profile.home / "skills")

    def skills(self, platform: str) -> dict[str, bool]:
        """Every skill that there is a name for, and whether anything on this surface offers it."""
        agent = self._settings.agent
        tools = set(agent.surfaces.get(platform, agent.tools))
        found = dict.fromkeys(DEFAULT_SKILLS, False)
        for name, ours in TOOLS_OF_SKILLS.items():
            found[name] = not tools.isdisjoint(ours)
        found["web-search"] &= self._settings.web.search.provider is not None
        for server in self._settings.mcp.values():
            if server.skill is not None and server.enabled:
                found[server.skill] = found.get(server.skill, False) or _MCP in tools
        for skill in self._installed.listing():
            found[skill.name] = found.get(skill.name, False) or "read_skill" in tools
        return found

    def connectors(self, platform: str) -> tuple[str, ...]:
        """The MCP servers that are used on this surface."""
        agent = self._settings.agent
        if _MCP not in agent.surfaces.get(platform, agent.tools):
            return ()
        return tuple(sorted(name for name, each in self._settings.mcp.items() if each.enabled))
