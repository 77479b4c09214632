"""What a person has set for themselves, over every conversation: as values, and what they mean.

Pure. It is kept as rows of names and texts (`skills.email` = `on`), so that one change is one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

__all__ = [
    "DEFAULT_SAFETY",
    "DEFAULT_SKILLS",
    "LONGEST_INSTRUCTIONS",
    "LONGEST_NAME",
    "TOOLS_OF_SKILLS",
    "Plan",
    "Soul",
    "UserSettings",
]

DEFAULT_SKILLS: Final[Mapping[str, bool]] = MappingProxyType(
    {
        "web-search": True,
        "fetch-url": True,
        "files": True,
        "email": False,
        "browser": False,
        "image-gen": False,
    }
)
DEFAULT_SAFETY: Final[Mapping[str, bool]] = MappingProxyType(
    {"email-send": True, "file-delete": True, "social-post": True}
)
TOOLS_OF_SKILLS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "web-search": ("web_search",),
        "fetch-url": ("web_fetch",),
        "files": ("read_file", "write_file", "edit_file", "search_files", "send_file"),
    }
)
"""Which of our own tools a skill is; others come from MCP servers that say which skill they are."""
LONGEST_NAME: Final = 60
LONGEST_INSTRUCTIONS: Final = 2_000
_ON: Final = "on"


@dataclass(frozen=True, slots=True)
class Soul:
    """How the agent is to be towards this person. Empty: as its own soul says."""

    name: str = ""
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What they may use in a month."""

    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class UserSettings:
    """All of it. What is not set has its default."""

    skills: Mapping[str, bool] = field(default_factory=lambda: DEFAULT_SKILLS)
    connectors: Mapping[str, bool] = field(default_factory=dict)
    soul: Soul = Soul()
    safety: Mapping[str, bool] = field(default_factory=lambda: DEFAULT_SAFETY)
    plan: Plan | None = None

    off: frozenset[str] = field(init=False, repr=False, compare=False)
    """What is turned off, by the names of its rows: `skills.email`, `connectors.tickets`."""

    def __post_init__(self) -> None:
        # Made once: these values are read for every turn, and kept between turns.
        skills = (f"skills.{name}" for name, on in self.skills.items() if not on)
        connectors = (f"connectors.{name}" for name, on in self.connectors.items() if not on)
        object.__setattr__(self, "off", frozenset((*skills, *connectors)))

    @classmethod
    def read(
        cls,
        rows: Mapping[str, str],
        *,
        safety: Mapping[str, bool] = DEFAULT_SAFETY,
        plan: Plan | None = None,
    ) -> UserSettings:
        """From the rows of one person; `safety` is what the settings give everyone."""
        return cls(
            skills={**DEFAULT_SKILLS, **_switches(rows, "skills.")},
            connectors=_switches(rows, "connectors."),
            soul=Soul(rows.get("soul.name", ""), rows.get("soul.instructions", "")),
            safety={**DEFAULT_SAFETY, **safety, **_switches(rows, "safety.")},
            plan=plan,
        )


def _switches(rows: Mapping[str, str], prefix: str) -> dict[str, bool]:
    return {
        name.removeprefix(prefix): value == _ON
        for name, value in rows.items()
        if name.startswith(prefix)
    }
