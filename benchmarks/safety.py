"""What each defense costs: a command in the sandbox, and what a turn pays for taint and audit."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import uvloop
from tests.agent.processes.house import open_house

from benchmarks.report import Row, median, milliseconds, percentile, print_table
from parley import audit
from parley.agent.question_text import describe_text
from parley.agent.sandbox import bubblewrap, find_sandbox
from parley.agent.taint import find_taint
from parley.profiles import Profile
from parley.protocol import ChatMessage, ToolCall

__all__ = ["run"]

_COMMANDS = 60
_WARM = 5
_RECORDS = 300
_REPEATS = 2_000
_BUDGET = 0.070
_SCRIPT = "\n".join(f"echo step {number} > out.{number}" for number in range(20))


def run() -> list[Row]:
    rows = []
    if find_sandbox("auto").contains:
        rows += _sandboxed()
    plain = uvloop.run(_commands("off"))
    rows.append(Row("  `true` without a sandbox, p50 / p99", _spread(plain)))
    rows += uvloop.run(_audit())
    context = _context()
    taint = _repeat(lambda: find_taint(context))
    shown = _repeat(lambda: describe_text("run", _SCRIPT))
    rows.append(Row("taint of a context with 200 messages", _microseconds(taint)))
    rows.append(Row("question for a command of 20 lines", _microseconds(shown)))
    return rows


def _sandboxed() -> list[Row]:
    """With and without the list of system calls by turns, so that both see the same machine."""
    with_filter: list[float] = []
    without: list[float] = []
    for _ in range(3):
        with_filter += uvloop.run(_commands("required"))
        with patch.object(bubblewrap, "filter_file", lambda **kind: None):
            without += uvloop.run(_commands("required"))
    took = median(with_filter)
    return [
        Row("`true` in the sandbox, p50 / p99", _spread(with_filter), "≤ 70 ms", took <= _BUDGET),
        Row("  without the list of system calls, p50 / p99", _spread(without)),
    ]


async def _commands(mode: Literal["required", "off"]) -> list[float]:
    took: list[float] = []
    with tempfile.TemporaryDirectory(prefix="parley-") as folder:
        async with open_house(Path(folder), mode=mode) as house:
            for number in range(_WARM + _COMMANDS):
                began = time.perf_counter()
                process, _ = await house.run(f"p{number}", "true")
                if number >= _WARM:
                    took.append(time.perf_counter() - began)
                assert process.exit_code == 0
    return took


async def _audit() -> list[Row]:
    queued: list[float] = []
    durable: list[float] = []
    with tempfile.TemporaryDirectory(prefix="parley-") as folder:
        profile = Profile("default", Path(folder))
        for number in range(_RECORDS):
            began = time.perf_counter()
            audit.record("tool.called", who="desk:ann", profile=profile, arguments={"n": number})
            queued.append(time.perf_counter() - began)
            began = time.perf_counter()
            await audit.record_durably(
                "approval.used", who="desk:ann", profile=profile, what=f"run `make {number}`"
            )
            durable.append(time.perf_counter() - began)
        await asyncio.to_thread(audit.flush)
    return [
        Row("audit record, not waited for, p50", _microseconds(median(queued))),
        Row("audit record on the disk (an approval), p50 / p99", _spread(durable)),
    ]


def _context() -> tuple[ChatMessage, ...]:
    said: list[ChatMessage] = []
    for number in range(50):
        call = ToolCall(f"c{number}", "web_fetch", {"url": f"https://example.org/{number}"})
        said += [
            ChatMessage("user", f"Read https://example.org/{number} and tell me what it says."),
            ChatMessage("assistant", "", tool_calls=(call,)),
            ChatMessage("tool", "words " * 200, tool_call_id=call.id, tool_name=call.name),
            ChatMessage("assistant", "It says a few words."),
        ]
    return tuple(said)


def _repeat(action: Callable[[], object]) -> float:
    took = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        action()
        took.append(time.perf_counter() - began)
    return median(took)


def _spread(values: list[float]) -> str:
    return f"{milliseconds(median(values))} / {milliseconds(percentile(values, 99))}"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs"


if __name__ == "__main__":
    print_table("Safety", run())
