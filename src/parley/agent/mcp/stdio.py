"""A server that is a child of ours. What it says is read in bounds, and its group ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from parley.agent.child_process import ChildProcess, start_child
from parley.agent.mcp import child
from parley.agent.mcp.limits import McpLimits
from parley.agent.mcp.log import ServerLog
from parley.agent.mcp.plan import Plan
from parley.agent.mcp.signals import Ended, Meter, Signals
from parley.agent.mcp.wire import spare_tools
from parley.config.files import make_private_directory

__all__ = ["open_child"]

_CHUNK: Final = 64 * 1024
_LOOK_SECONDS: Final = 0.01

Incoming: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing: TypeAlias = MemoryObjectReceiveStream[SessionMessage]
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@contextlib.asynccontextmanager
async def open_child(plan: Plan, signals: Signals, limits: McpLimits) -> AsyncIterator[Streams]:
    """Start the program; its streams are gone, and so is it, when this is left."""
    log = ServerLog(plan.log_file, plan.redactor, largest=limits.log_bytes)
    await asyncio.to_thread(make_private_directory, plan.home)
    process = await start_child(_guarded(plan.command), environment=plan.environment, cwd=plan.home)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_hear(process, incoming, signals, limits, log)),
        asyncio.create_task(_tell(process, outgoing, signals)),
        asyncio.create_task(log.follow(_reader(process.stderr))),
    ]
    try:
        yield read, write
    finally:
        try:
            await _end(process, limits)
        finally:
            _kill_group(process, signal.SIGKILL)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (incoming, read, write, outgoing):
                stream.close()
            await _gone(process, limits.end_within)
            process.close()


def _guarded(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command so that it dies with us, where the system can do that."""
    if sys.platform != "linux":
        return command
    script = str(Path(child.__file__))
    return (sys.executable, "-I", "-S", script, str(os.getpid()), *command)


async def _hear(
    process: ChildProcess,
    incoming: Incoming,
    signals: Signals,
    limits: McpLimits,
    log: ServerLog,
) -> None:
    """Hand on what it says, a message a line; what is no message goes to its log."""
    meter = Meter(limits)
    reader = _reader(process.stdout)
    buffer = bytearray()
    try:
        async with incoming:
            while chunk := await reader.read(_CHUNK):
                seen = len(buffer)
                buffer += chunk
                while (end := buffer.find(b"\n", seen)) >= 0:
                    line = bytes(buffer[:end])
                    del buffer[: end + 1]
                    seen = 0
                    meter.count(len(line))
                    await _hand_on(line, incoming, signals, log)
                if len(buffer) > limits.message_bytes:
                    meter.count(len(buffer))
            signals.end(await _how_it_ended(process))
    except Ended as error:
        signals.end(str(error))
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        signals.end("The connection was closed.")
    except (OSError, ValueError) as error:
        signals.end(f"Its output cannot be read ({type(error).__name__}).")


async def _hand_on(line: bytes, incoming: Incoming, signals: Signals, log: ServerLog) -> None:
    if not line.strip():
        return
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        await asyncio.to_thread(log.write, [b"(no message) " + line[:500]])
        return
    spare_tools(message, signals)
    await incoming.send(SessionMessage(message))


async def _tell(process: ChildProcess, outgoing: Outgoing, signals: Signals) -> None:
    pipe = process.stdin
    if pipe is None:
        raise TypeError("the child was started without its input")
    try:
        async with outgoing:
            async for item in outgoing:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                pipe.write(text.encode() + b"\n")
                await pipe.drain()
    except OSError:
        signals.end(await _how_it_ended(process))
    except (ValueError, RuntimeError) as error:
        signals.end(f"It cannot be written to ({type(error).__name__}).")


async def _how_it_ended(process: ChildProcess) -> str:
    await _gone(process, 0.5)
    status = process.returncode
    if status is None:
        return "It closed its output."
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    return f"It ended with {how}."


async def _end(process: ChildProcess, limits: McpLimits) -> None:
    """First let it go by itself, then ask it to."""
    if process.stdin is not None:
        process.stdin.close()
    if not await _gone(process, limits.end_within):
        _kill_group(process, signal.SIGTERM)
        await _gone(process, limits.end_within)


async def _gone(process: ChildProcess, within: float) -> bool:
    """Looked at, not waited for: a grandchild that holds its output would keep us waiting."""
    deadline = time.monotonic() + within
    while process.returncode is None and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_SECONDS)
    return process.returncode is not None


def _kill_group(process: ChildProcess, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, what)


def _reader(stream: asyncio.StreamReader | None) -> asyncio.StreamReader:
    if stream is None:
        raise TypeError("the child was started without its output")
    return stream
