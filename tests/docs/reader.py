"""A reader who types the examples of a page, in order, on a machine where nothing is set up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.pages import Step, matches

__all__ = ["Reader"]

_PORT = "8642"
_SERVES = "parley gateway run"
_STOPS = "^C"


class Reader:
    """`with Reader(home, models) as reader: reader.follow(step)`.

    The gateway's port is a free one in truth; the reader sees the one of the page.
    """

    def __init__(self, home: Path, models: Path) -> None:
        self._home = home
        self._port = str(_free_port())
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
        else:
            code, printed = self._run(step.command)
        printed = printed.replace(self._port, _PORT)
        if not matches(step.output, printed):
            said = "\n".join(step.output)
            raise AssertionError(f"$ {step.command}\nThe page says:\n{said}\nIn truth:\n{printed}")
        assert code == 0 or step.may_fail, f"$ {step.command}\nended with {code}:\n{printed}"

    def _run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command.replace(_PORT, self._port)],
            cwd=self._home,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
        )
        # A reader's prompt would begin on a line of its own.
        ended = done.stdout if not done.stdout or done.stdout.endswith("\n") else done.stdout + "\n"
        return done.returncode, ended

    def _serve(self, lines: int) -> str:
        """Leave it running, as in a shell of its own; returns its first lines."""
        self._gateway = subprocess.Popen(
            [sys.executable, "-m", *_SERVES.split()],
            cwd=self._home,
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
            printed, _ = gateway.communicate(timeout=30)
        finally:
            gateway.kill()
        return gateway.returncode, printed


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
