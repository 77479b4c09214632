"""The child process from its parent's side: started, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from parley.agent.child_process import ChildProcess, start_child
from parley.agent.providers.base import ProviderError
from parley.agent.providers.local.child import Answer, Load
from parley.agent.providers.local.environment import model_environment
from parley.agent.providers.local.runtime import unpacked_runtime

__all__ = ["NO_RUNTIME", "ModelProcess", "Wanted"]

_LOAD_SECONDS = 300.0
_END_SECONDS = 2.0
_LOG_BYTES = 1_000_000
NO_RUNTIME = "What runs local models is not installed: run `parley model install runtime`."


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a child is to serve. `context_tokens` is for each request, `threads` 0 is our choice."""

    weights: Path
    context_tokens: int
    threads: int


@dataclass(slots=True)
class ModelProcess:
    """A child that serves a model at `address` to whoever has `key`."""

    address: str
    key: str = field(repr=False)
    _process: ChildProcess

    @classmethod
    async def start(cls, wanted: Wanted, *, log_file: Path | None) -> Self:
        """Start the child and wait until the weights are loaded."""
        key = secrets.token_urlsafe(32)
        unpacked = unpacked_runtime()
        load = Load(
            weights=str(wanted.weights),
            context_tokens=wanted.context_tokens,
            threads=wanted.threads,
            key=key,
            parent=os.getpid(),
            runtime=None if unpacked is None else str(unpacked),
        )
        process = await _spawn(log_file)
        try:
            answer = await asyncio.wait_for(_ask(process, load), _LOAD_SECONDS)
        except TimeoutError as error:
            await _end(process)
            raise ProviderError(
                f"The local model did not load within {_LOAD_SECONDS:.0f} seconds: "
                f"choose a smaller one with `parley model use`.",
                kind="timeout",
            ) from error
        except BaseException:
            await _end(process)
            raise
        if answer is None or answer.outcome != "ready":
            await _end(process)
            raise _failure(answer, wanted, log_file)
        return cls(answer.address, key, process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def ended(self, within: float = 1.0) -> bool:
        """Whether the child is gone, or goes soon: its sockets close a moment before it does."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), within)
        return not self.alive

    async def stop(self) -> None:
        """End the child, whatever it is doing, and wait until it is gone."""
        await _end(self._process)


async def _spawn(log_file: Path | None) -> ChildProcess:
    log = await asyncio.to_thread(_open_log, log_file)
    try:
        return await start_child(
            (sys.executable, "-P", "-m", "parley.agent.providers.local.child"),
            environment=model_environment(),
            stderr=subprocess.DEVNULL if log is None else log,
        )
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise ProviderError(
            f"The local model's process could not be started ({reason}): try again.", kind="broken"
        ) from error
    finally:
        if log is not None:
            os.close(log)


def _open_log(path: Path | None) -> int | None:
    if path is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        log = os.open(path, flags, 0o600)
        if os.fstat(log).st_size > _LOG_BYTES:
            os.ftruncate(log, 0)
    except OSError:
        return None  # a model without its log is better than none
    return log


async def _ask(process: ChildProcess, load: Load) -> Answer | None:
    if process.stdin is None or process.stdout is None:
        return None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(load.to_line())
        await process.stdin.drain()
    line = await process.stdout.readline()
    try:
        return Answer(**json.loads(line))
    except (ValueError, TypeError):
        return None


async def _end(process: ChildProcess) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _END_SECONDS)
    except TimeoutError:
        pass
    finally:
        # Also when we are cancelled ourselves: nothing of ours is left behind.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    await process.wait()
    process.close()


def _failure(answer: Answer | None, wanted: Wanted, log_file: Path | None) -> ProviderError:
    if answer is not None and answer.outcome == "no_library":
        return ProviderError(NO_RUNTIME, kind="refused")
    where = f"; its log is {log_file}" if log_file is not None else ""
    return ProviderError(
        f"The local model could not be loaded from {wanted.weights}: install it again, or choose "
        f"another with `parley model use`{where}.",
        kind="refused",
    )
