"""Real processes for tests and benchmarks: a gateway that may be killed, a model that outlives it.

Each has what it needs in a directory of its own. Whoever starts one ends it: use them with `with`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from parley.gateway.home import socket_path
from parley.profiles import DEFAULT_PROFILE, Profile
from parley.surfaces.terminal.client import Disconnected, TerminalClient

__all__ = ["GatewayProcess", "ModelProcess", "environment", "write_config"]

REPOSITORY = Path(__file__).parents[2]
_READY_WITHIN = 60.0


class ModelProcess:
    """The scripted model in a process of its own."""

    def __init__(self, *, delay: float = 0.0) -> None:
        self._delay = delay
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.scripted_model", "--delay", str(self._delay)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it complains of every caller that was killed
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.__exit__(None, None, None)
            raise RuntimeError("The scripted model did not start.")
        self.port = int(json.loads(line)["port"])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            _end(self._process)
            if self._process.stdout is not None:
                self._process.stdout.close()


class GatewayProcess:
    """`parley gateway run` on a home of its own, as often as it is started again.

    `command` is another way to run a gateway on that home, for who wants to look inside.
    """

    def __init__(
        self, home: Path, *, command: tuple[str, ...] = ("-m", "parley", "gateway", "run")
    ) -> None:
        self.profile = Profile(DEFAULT_PROFILE, home)
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def socket(self) -> Path:
        return socket_path(self.profile)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """All it has said, over all its lives."""
        return (self.profile.home / "output.txt").read_text(errors="replace")

    def start(self) -> None:
        assert self._process is None, "it runs already"
        if self._output is None:
            self._output = (self.profile.home / "output.txt").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, *self._command],
            cwd=REPOSITORY,
            env=environment(self.profile.home),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    async def until_ready(self, *, seconds: float = _READY_WITHIN) -> None:
        """Wait until the socket answers."""
        async with asyncio.timeout(seconds):
            while await self.status() is None:
                if self._process is None or self._process.poll() is not None:
                    raise RuntimeError(f"The gateway ended by itself:\n{self.output}")
                await asyncio.sleep(0.005)

    async def status(self) -> dict[str, object] | None:
        """What it tells of itself; None when nobody answers."""
        try:
            client = await TerminalClient.connect(self.socket)
        except Disconnected:
            return None
        try:
            return (await client.status()).status
        except Disconnected:
            return None
        finally:
            await client.close()

    def kill(self) -> None:
        """SIGKILL, and wait until the system has let go of what it held."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait(timeout=60)

    async def ends(self, *, seconds: float) -> bool:
        """Whether it came to its end by itself in this time."""
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while (is_over := self._process.poll() is not None) is False:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.005)
        return is_over

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        process.terminate()
        return await asyncio.to_thread(process.wait, 30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if self._output is not None:
            self._output.close()


def write_config(
    home: Path, *, model_url: str, gateway: Mapping[str, object] | None = None
) -> Profile:
    """A home whose agent asks the model at `model_url`."""
    home.mkdir(parents=True, exist_ok=True)
    config = {
        "model": {"provider": "scripted"},
        "providers": {"scripted": {"base_url": model_url, "model": "scripted"}},
        "gateway": {"port": 0, **(gateway or {})},
    }
    profile = Profile(DEFAULT_PROFILE, home)
    profile.config_file.write_text(json.dumps(config, indent=2))  # JSON is YAML
    return profile


def environment(home: Path) -> dict[str, str]:
    """Nothing of this machine's settings or keys; where our sources are goes along."""
    told = {"PATH": os.environ["PATH"], "PARLEY_HOME": str(home), "HOME": str(home)}
    if "PYTHONPATH" in os.environ:
        told["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return told


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
