"""The `parley` command itself, run as a person or a script runs it, in a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pexpect

from parley.profiles import Profile

__all__ = ["Parley"]


@dataclass(frozen=True, slots=True)
class Parley:
    """Runs `parley` with `home`; `more` is added to its environment."""

    home: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def profile(self) -> Profile:
        return Profile("default", self.home)

    def environment(self) -> dict[str, str]:
        beside = str(Path(sys.executable).parent)
        return {
            "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home.parent),
            "PARLEY_HOME": str(self.home),
            "PARLEY_GATEWAY_PORT": "0",
            "NO_COLOR": "1",
            "TZ": "UTC",
            **self.more,
        }

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self.execute([sys.executable, "-m", "parley", *arguments], stdin=stdin)

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        """A script of a person's shell, where `parley` is a command."""
        return self.execute(["bash", "-c", script])

    def execute(self, command: list[str], *, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            env=self.environment(),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=60,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments).stdout)

    def terminal(self, *arguments: str) -> pexpect.spawn[str]:
        return pexpect.spawn(
            sys.executable,
            ["-m", "parley", *arguments],
            env=self.environment(),
            timeout=60,
            encoding="utf-8",
        )

    @contextmanager
    def gateway(self) -> Iterator[subprocess.Popen[str]]:
        """A gateway that serves the home until the end of the block."""
        process = subprocess.Popen(
            [sys.executable, "-m", "parley", "gateway", "run"],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            assert "serves" in said, said + process.stdout.read()
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
