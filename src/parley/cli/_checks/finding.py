"""What a check found: how bad it is, in one sentence, and the command that mends it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["Finding", "Level", "edit", "fault", "note", "ok", "quoted"]

Level: TypeAlias = Literal["ok", "note", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `mend` can be pasted into a shell as it stands."""

    check: str
    level: Level
    what: str
    mend: str = ""


def ok(check: str, what: str) -> Finding:
    return Finding(check, "ok", what)


def note(check: str, what: str, mend: str = "") -> Finding:
    return Finding(check, "note", what, mend)


def fault(check: str, what: str, mend: str = "") -> Finding:
    return Finding(check, "fault", what, mend)


def quoted(path: Path) -> str:
    """A path as it stands in a command."""
    return shlex.quote(str(path))


def edit(path: Path, line: int | None = None) -> str:
    """The command that opens a file where it is wrong."""
    place = f"+{line} " if line else ""
    return f'"${{EDITOR:-vi}}" {place}{quoted(path)}'
