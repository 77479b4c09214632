"""A hand from its parent's side: a child process that answers one request at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence

from parley.agent.child_process import ChildProcess, start_child

__all__ = ["Child", "Ended", "NotAsked"]

_log = logging.getLogger("parley.files")

_LONGEST_ANSWER = 32_000_000  # a file of 20 MiB in base64
_CLOSE_SECONDS = 1.0
_COMPLAINT_BYTES = 2000


class Ended(Exception):
    """The child ended, and it is not known what it did before."""


class NotAsked(Ended):
    """The child ended before it saw the request."""


class Child:
    """Once anything went wrong with it, it is killed and of no more use."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        return cls(await start_child(command, environment=environment, cwd="/"))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, request: bytes, seconds: float) -> bytes:
        """Its answer. Raises `Ended` when it is gone and `TimeoutError` when it hangs."""
        try:
            async with asyncio.timeout(seconds):
                await self._send(request)
                return await self._receive()
        except Ended:
            await self._note_complaint()
            self.kill()
            raise
        except BaseException:  # also when nobody waits any more: the answer would be another's
            self.kill()
            raise

    def kill(self) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def ended(self) -> None:
        """Come back when it is gone and its pipes are closed."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()
        # What it started may hold them for a moment longer.
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                for pipe in (process.stdout, process.stderr):
                    if pipe is not None:
                        await pipe.read()
                if process.stdin is not None:
                    await process.stdin.wait_closed()
        process.close()

    async def _send(self, request: bytes) -> None:
        stdin = self._process.stdin
        if stdin is None or not self.alive:
            raise NotAsked
        try:
            stdin.write(len(request).to_bytes(4, "big") + request)
            await stdin.drain()
        except ConnectionError as error:  # it takes all of a request before it begins
            raise NotAsked from error

    async def _receive(self) -> bytes:
        stdout = self._process.stdout
        if stdout is None:
            raise Ended
        try:
            size = int.from_bytes(await stdout.readexactly(4), "big")
            if size == 0:
                raise NotAsked
            if size > _LONGEST_ANSWER:
                raise Ended
            return await stdout.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Ended from error

    async def _note_complaint(self) -> None:
        """What it said before it ended: why a sandbox does not start is said there alone."""
        stderr = self._process.stderr
        if stderr is None:
            return
        with contextlib.suppress(TimeoutError, ConnectionError):
            said = await asyncio.wait_for(stderr.read(_COMPLAINT_BYTES), 1.0)
            if said:
                _log.warning("the file tools' process ended: %s", said.decode("utf-8", "replace"))
