"""A shell to run the verbs in: real processes, with a home of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pexpect

__all__ = ["Shell"]

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs `parley` with a home of its own."""

    home: Path

    def environment(self, **more: str) -> dict[str, str]:
        ours = {"PATH": os.environ["PATH"], "PARLEY_HOME": str(self.home), "NO_COLOR": "1"}
        return {**ours, "HOME": str(self.home.parent), **more}

    def run(
        self, *arguments: str, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "tests.cli.program", *arguments],
            cwd=REPOSITORY,
            env=self.environment(**environment),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stdout + done.stderr
        return done

    def config(self) -> str:
        return (self.home / "config.yaml").read_text()

    def terminal(self, *arguments: str, **environment: str) -> pexpect.spawn[str]:
        """The same in a terminal."""
        return pexpect.spawn(
            sys.executable,
            ["-m", "tests.cli.program", *arguments],
            cwd=str(REPOSITORY),
            env=self.environment(**environment),
            timeout=60,
            encoding="utf-8",
        )
