"""The tool `read_skill`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from parley.agent.foreign import one_line
from parley.agent.skills import FILE, Skill, SkillError, Skills, inside, read_text, split_front
from parley.agent.tools.base import Tool, ToolContext, ToolError, tool

__all__ = ["skill_tools"]

_MOST_FILES: Final = 50
_MOST_LOOKED_AT: Final = 500


class ReadSkillArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    file: str | None = Field(default=None, description="another file of the skill")


def skill_tools(skills: Skills) -> tuple[Tool[Any], ...]:
    """The tools that go with these skills."""

    @tool(safe_to_repeat=True, parallel=True)
    async def read_skill(arguments: ReadSkillArguments, context: ToolContext) -> str:
        """Read a skill's instructions."""
        return await asyncio.to_thread(_read, skills, arguments, context.off)

    return (read_skill,)


def _read(skills: Skills, arguments: ReadSkillArguments, off: frozenset[str]) -> str:
    usable = [each for each in skills.listing() if f"skills.{each.name}" not in off]
    skill = next((each for each in usable if each.name == arguments.name), None)
    if skill is None:
        known = ", ".join(one.name for one in usable) or "none"
        raise ToolError(
            f"There is no skill `{one_line(arguments.name, longest=80)}`; there are: {known}."
        )
    try:
        text = read_text(inside(skill.folder, arguments.file or FILE))
    except SkillError as error:
        raise ToolError(f"{skill.name}: {error}") from error
    if arguments.file not in {None, FILE}:
        return text or "(the file is empty)"
    others = _others(skill)
    listed = f"\n\nIts other files: {', '.join(others)}" if others else ""
    return (split_front(text)[1].strip() or skill.description) + listed


def _others(skill: Skill) -> list[str]:
    found: list[str] = []
    looked_at = 0
    for folder, folders, files in os.walk(skill.folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        looked_at += len(files) + len(folders)
        here = Path(folder).relative_to(skill.folder)
        found += [str(here / name) for name in sorted(files) if not name.startswith(".")]
        if looked_at > _MOST_LOOKED_AT:
            break
    plain = [name for name in found if name != FILE and one_line(name, longest=200) == name]
    more = [f"and {len(plain) - _MOST_FILES} more"] if len(plain) > _MOST_FILES else []
    return [*plain[:_MOST_FILES], *more]
