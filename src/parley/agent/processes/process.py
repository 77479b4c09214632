"""What is known of a process: what was asked for, how it stands, what it printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["Ended", "Matched", "Output", "Process", "ProcessState", "Spec"]

ProcessState: TypeAlias = Literal["running", "done", "failed", "killed", "lost"]


@dataclass(frozen=True, slots=True)
class Spec:
    """A command line for the shell, and how it is to run. `timeout` None is without end.

    `private` is the folder of its conversation alone: in a sandbox, `.parley` of the workspace.
    """

    command: str
    lane: str
    workspace: Path
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    pty: bool = False
    timeout: float | None = None
    patterns: tuple[str, ...] = ()
    network: bool = False
    private: Path | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """`killed`: by us, for `reason`. `lost`: it is gone, and nobody saw how it ended.

    `contained`: it runs in a sandbox. `bytes` is all that it printed, known at its end. `pty`: it
    reads what is typed from a terminal.
    """

    id: str
    command: str
    lane: str
    state: ProcessState
    started_at: float
    contained: bool
    exit_code: int | None = None
    reason: str | None = None
    ended_at: float | None = None
    bytes: int | None = None
    pty: bool = False

    @property
    def is_running(self) -> bool:
        return self.state == "running"


@dataclass(frozen=True, slots=True)
class Output:
    """The end of what was printed, and how many bytes of it are not shown."""

    text: str
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A process is over; `lines` matched its patterns and were not reported before."""

    process: Process
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Matched:
    """Lines that matched a pattern, and how many more did. After the `last` there is no other.

    `number` counts the reports of a process: the same number is the same report.
    """

    process: Process
    lines: tuple[str, ...]
    number: int
    more: int = 0
    last: bool = False
