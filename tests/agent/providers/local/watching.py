"""What the tests of the local model share: requests, answers, and a look at the child."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from parley.agent.providers.base import ModelReply, ModelRequest
from parley.agent.providers.local.provider import LocalProvider
from parley.protocol import ChatMessage, TextDelta

PARIS = ModelRequest(
    "You are a helpful assistant.",
    (ChatMessage("user", "What is the capital of France?"),),
    max_output_tokens=40,
)
ENDLESS = ModelRequest(
    "You are a helpful assistant.", (ChatMessage("user", "Count from 1 to 1000."),)
)


async def answer(provider: LocalProvider, request: ModelRequest) -> tuple[list[str], ModelReply]:
    deltas: list[str] = []
    replies: list[ModelReply] = []
    async for event in provider.stream(request):
        if isinstance(event, TextDelta):
            deltas.append(event.text)
        elif isinstance(event, ModelReply):
            replies.append(event)
    assert len(replies) == 1
    return deltas, replies[0]


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
            if int(state[1]) == pid and state[0] != "Z" and b"local.child" in command:
                found.append(int(entry.name))
    return found


def child_of(pid: int) -> int:
    (child,) = children_of(pid)
    return child


def exists(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def cpu_over(pid: int, seconds: float) -> float:
    """Processor seconds per second that `pid` uses, watched for a while."""
    before = _cpu(pid)
    time.sleep(seconds)
    return (_cpu(pid) - before) / seconds


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def until(fact: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.02)
