"""A reader who types the examples of a page, in order, on a machine where nothing is set up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.pages import Step, matches
from tests.servers.ports import free_port
from tests.servers.scripted_model import ScriptedModel

__all__ = ["Reader", "home_of"]

_PORT = "8642"
_SERVES = "parley gateway run"
_STOPS = "^C"
_KEEPS = "export "


class Reader:
    """`with Reader(home, models) as reader: reader.follow(step)`.

    The gateway's port is a free one in truth; the reader sees the one of the page. `others` are
    more names that a page has for what is called otherwise here.
    """

    def __init__(
        self,
        home: Path,
        models: Path,
        *,
        folder: Path | None = None,
        port: int | None = None,
        others: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder or home
        self._port = str(port or free_port())
        self._real = {**(others or {}), _PORT: self._port}
        self._gateway: subprocess.Popen[str] | None = None
        self._environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "PARLEY_CACHE": str(models),
            "PARLEY_GATEWAY_PORT": self._port,
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "TZ": "UTC",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._gateway is not None:
            self._stop(self._gateway)

    def follow(self, step: Step) -> None:
        """Type the command; fail unless it prints what the page says."""
        if step.command == _SERVES:
            code, printed = 0, self._serve(len(step.output))
        elif step.command == _STOPS:
            assert self._gateway is not None, "There is no gateway to stop."
            code, printed = self._stop(self._gateway)
            self._gateway = None
        elif step.command.startswith(_KEEPS):
            code, printed = self._export(step.command)
        else:
            code, printed = self._run(step.command)
        for shown, real in self._real.items():
            printed = printed.replace(real, shown)
        if not matches(step.output, printed):
            said = "\n".join(step.output)
            raise AssertionError(f"$ {step.command}\nThe page says:\n{said}\nIn truth:\n{printed}")
        assert code == 0 or step.may_fail, f"$ {step.command}\nended with {code}:\n{printed}"

    def _export(self, command: str) -> tuple[int, str]:
        """Keep a variable for the commands that follow."""
        name = command.removeprefix(_KEEPS).partition("=")[0]
        code, value = self._run(f'{command} && printf %s "${name}"')
        if code == 0:
            self._environment[name] = value.strip()
        return code, "" if code == 0 else value

    def _run(self, command: str) -> tuple[int, str]:
        for shown, real in self._real.items():
            command = command.replace(shown, real)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
        )
        # A reader's prompt begins on a line of its own, and empty lines before it are not seen.
        printed = done.stdout.rstrip("\n")
        return done.returncode, f"{printed}\n" if printed else ""

    def _serve(self, lines: int) -> str:
        """Leave it running, as in a shell of its own; returns its first lines."""
        self._gateway = subprocess.Popen(
            [sys.executable, "-m", *_SERVES.split()],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._gateway.stdout is not None
        return "".join(self._gateway.stdout.readline() for _ in range(lines))

    def _stop(self, gateway: subprocess.Popen[str]) -> tuple[int, str]:
        """Press Ctrl-C where it runs; returns what it says then."""
        gateway.send_signal(signal.SIGINT)
        try:
            printed, _ = gateway.communicate(timeout=60)
        finally:
            gateway.kill()
        return gateway.returncode, printed


def home_of(folder: Path, machine: str, model: ScriptedModel) -> Path:
    """Where an agent lives that this model answers for."""
    home = folder / (machine or "home")
    (home / ".parley").mkdir(parents=True)
    (home / ".parley" / "config.yaml").write_text(
        "model:\n  provider: scripted\n"
        f"providers:\n  scripted:\n    base_url: {model.base_url}\n    model: scripted\n"
    )
    return home
