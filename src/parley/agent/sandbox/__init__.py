"""What keeps a command in bounds: bubblewrap where it works, else a child with fewer rights."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from parley.protocol import ParleyError

__all__ = ["Sandbox", "SandboxMode", "find_sandbox", "sandbox_for"]

SandboxMode: TypeAlias = Literal["auto", "required", "off"]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """`restricted` keeps nothing in bounds, so a person is asked; `problem` says why it is that."""

    kind: Literal["bubblewrap", "restricted"]
    program: str | None = None
    problem: str | None = None

    @property
    def contains(self) -> bool:
        """Whether a command reaches nothing but its workspace."""
        return self.kind == "bubblewrap"

    def command(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        cwd: Path,
        environment: Mapping[str, str],
        network: bool = False,
        read_only: Sequence[Path] = (),
        terminal: bool = False,
        private: tuple[Path, Path] | None = None,
    ) -> list[str]:
        """What to execute so that `argv` runs in here; `terminal` leaves it the one it was given.

        `private` is a folder beside the workspace that is writable too, and where it is seen.
        It has an empty home. The environment of a restricted child is up to whoever starts it.
        """
        if self.program is None:
            return list(argv)
        from parley.agent.sandbox.bubblewrap import Box, bubblewrap_command

        box = Box(workspace, cwd, network, tuple(read_only), terminal, private)
        return bubblewrap_command(self.program, argv, box, environment)


def find_sandbox(mode: SandboxMode) -> Sandbox:
    """The best there is on this machine. The first call tries it out and takes a moment.

    Raises `ParleyError` when one is required and none works.
    """
    if mode == "off":
        return Sandbox("restricted", problem="it is turned off (terminal.sandbox)")
    from parley.agent.sandbox.probe import probe

    found = probe()
    if mode == "required" and not found.contains:
        raise ParleyError(
            f"terminal.sandbox is `required`, but {found.problem}: install bubblewrap, or set it "
            f"to `auto`."
        )
    return found


async def sandbox_for(mode: SandboxMode) -> Sandbox:
    """The same, for whoever must not wait."""
    return await asyncio.to_thread(find_sandbox, mode)
