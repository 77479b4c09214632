"""The tool `read_file`, and the one place that says which paths a tool may reach."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from parley.agent.tools.base import ToolContext, ToolError, tool

__all__ = ["read_file", "resolve_inside"]

_LONGEST_FILE = 10_000_000


def resolve_inside(workspace: Path, path: str) -> Path:
    """The real path, when it lies in the workspace; links and `..` are followed first."""
    if "\0" in path:
        raise ToolError("A path cannot hold a NUL character.")
    base = workspace.resolve()
    try:
        real = (base / Path(path).expanduser()).resolve()
    except RuntimeError as error:  # a loop of links, or the home of nobody
        raise ToolError(f"{path} leads nowhere.") from error
    if real != base and base not in real.parents:
        raise ToolError(f"{path} is outside the workspace; only files in it can be read.")
    return real


class ReadFileArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="relative to the workspace")
    first_line: int = Field(default=1, ge=1)
    lines: int = Field(default=500, ge=1, le=5000, description="how many to read")


@tool(safe_to_repeat=True, parallel=True)
async def read_file(arguments: ReadFileArguments, context: ToolContext) -> str:
    """Read a text file of the workspace, or list a folder."""
    return await asyncio.to_thread(_read, arguments, context.workspace)


def _read(arguments: ReadFileArguments, workspace: Path) -> str:
    real = resolve_inside(workspace, arguments.path)
    if real.is_dir():
        return _list(real)
    try:
        # Not to hang on a pipe, nor follow a link put there a moment ago.
        handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError as error:
        raise ToolError(f"There is no {arguments.path} in the workspace.") from error
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ToolError(f"{arguments.path} is not an ordinary file.")
        content = file.read(_LONGEST_FILE)
    if b"\0" in content[:8192]:
        raise ToolError(f"{arguments.path} is not a text file.")
    lines = content.decode("utf-8", errors="replace").splitlines()
    start = arguments.first_line - 1
    if lines and start >= len(lines):
        return f"(the file has only {len(lines)} lines)"
    chosen = lines[start : start + arguments.lines]
    left = len(lines) - start - len(chosen)
    note = [f"… ({left} more lines)"] if left > 0 else []
    return "\n".join([*chosen, *note]) or "(the file is empty)"


def _list(folder: Path) -> str:
    names = sorted(item.name + ("/" if item.is_dir() else "") for item in folder.iterdir())
    return "\n".join(names[:500]) or "(the folder is empty)"
