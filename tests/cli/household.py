"""The whole program as people run it, in a home whose model is the scripted one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pexpect

from tests.cli.command import Parley
from tests.servers.scripted_model import ScriptedModel

__all__ = ["Done", "Household"]

_TERMINAL = {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"}

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Household:
    """A home, and commands that are run in it."""

    home: Path
    model: ScriptedModel
    port: int = 0

    def configure(self, more: str = "", *, base_url: str | None = None) -> None:
        """Write the settings; `more` is YAML beside them."""
        self.home.mkdir(exist_ok=True)
        (self.home / "config.yaml").write_text(
            "model:\n  provider: scripted\n"
            "providers:\n  scripted:\n"
            f"    base_url: {base_url or self.model.base_url}\n    model: scripted\n{more}"
        )

    @property
    def parley(self) -> Parley:
        return Parley(self.home, {"LANG": "C.UTF-8", "PARLEY_GATEWAY_PORT": str(self.port)})

    def run(self, *arguments: str, stdin: str = "") -> Done:
        return self.parley.run(*arguments, stdin=stdin)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "parley", *arguments],
            env=self.parley.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def gateway(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """`parley gateway run`, until it serves; ended if it still runs."""
        with self.begin("gateway", "run", *arguments) as process:
            try:
                assert process.stdout is not None
                while "api" not in (line := process.stdout.readline()):
                    if not line:
                        assert process.stderr is not None
                        raise AssertionError(process.stderr.read())
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    process.send_signal(signal.SIGTERM)
                    process.wait(60)

    @contextmanager
    def chat(self, *arguments: str) -> Iterator[pexpect.spawn[str]]:
        """`parley chat` in a terminal."""
        screen = pexpect.spawn(
            sys.executable,
            ["-m", "parley", "chat", *arguments],
            env={**self.parley.environment(), "NO_COLOR": "", **_TERMINAL},
            timeout=60,
            encoding="utf-8",
            dimensions=(40, 100),
        )
        try:
            yield screen
        finally:
            screen.close(force=True)

    def asked(self, number: int = -1) -> list[str]:
        """What the model was asked in one request, without the system prompt."""
        messages: list[dict[str, Any]] = json.loads(self.model.requests[number].body)["messages"]
        return [str(m["content"]) for m in messages if m["role"] != "system"]
