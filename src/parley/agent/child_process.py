"""A child process with pipes to it, which inherits no open file of ours.

`asyncio.create_subprocess_exec` is not used: on uvloop, which the gateway runs on, it closes
nothing, so that a child would have every file that we were started with, and it copies the tables
of all our memory on the event loop, which is held until the child runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

__all__ = ["ChildProcess", "start_child"]

_LOOK_SECONDS = 0.02
# One after another, so that the event loop has its turn in between. The thread is never ended: a
# sandbox dies with the thread that started it.
_starter = ThreadPoolExecutor(1, "start-child")


class ChildProcess:
    """What `asyncio.subprocess.Process` offers; `close` gives our ends of the pipes back."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._transports: list[asyncio.BaseTransport] = []
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        """Wait until it ends; whoever may still hold its pipes."""
        while (code := self._process.poll()) is None:
            await _until_exit(self._process.pid)
        return code

    async def communicate(self, data: bytes) -> bytes:
        """Give it `data` and return what it prints until its end."""
        if self.stdin is None or self.stdout is None:
            raise TypeError("the child was started without pipes")
        told, _ = await asyncio.gather(self.stdout.read(), self._feed(self.stdin, data))
        await self.wait()
        return told

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Close our ends of its pipes, whoever may still hold the others."""
        for transport in self._transports:
            transport.close()

    async def connect(self) -> None:
        """Bring the pipes into the running event loop."""
        process = self._process
        if process.stdin is not None:
            self.stdin = await self._writer(process.stdin)
        if process.stdout is not None:
            self.stdout = await self._reader(process.stdout)
        if process.stderr is not None:
            self.stderr = await self._reader(process.stderr)

    async def _reader(self, pipe: IO[bytes]) -> asyncio.StreamReader:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
        self._transports.append(transport)
        return reader

    async def _writer(self, pipe: IO[bytes]) -> asyncio.StreamWriter:
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), loop=loop)
        transport, _ = await loop.connect_write_pipe(lambda: protocol, pipe)
        self._transports.append(transport)
        return asyncio.StreamWriter(transport, protocol, None, loop)

    async def _feed(self, pipe: asyncio.StreamWriter, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # it ended early, or does not read
            pipe.write(data)
            await pipe.drain()
        pipe.close()


async def start_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: str | Path | None = None,
    stderr: int = subprocess.PIPE,
) -> ChildProcess:
    """Start it in a session of its own: a Ctrl-C in our terminal is not for it."""

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=dict(environment),
            cwd=cwd,
            bufsize=0,
            close_fds=True,
            start_new_session=True,
        )

    begun = _starter.submit(begin)
    try:
        process = await asyncio.wrap_future(begun)
    except asyncio.CancelledError:
        begun.add_done_callback(_discard)
        raise
    child = ChildProcess(process)
    try:
        await child.connect()
    except BaseException:
        child.close()
        process.kill()
        process.wait()
        raise
    return child


def _discard(begun: Future[subprocess.Popen[bytes]]) -> None:
    """End a child that nobody waits for any more."""
    if begun.cancelled() or begun.exception() is not None:
        return
    with begun.result() as process:
        process.kill()


async def _until_exit(pid: int) -> None:
    """Return when the process has ended, or after a moment where the system cannot tell."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or reaped meanwhile
        await asyncio.sleep(_LOOK_SECONDS)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
