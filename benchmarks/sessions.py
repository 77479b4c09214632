"""Many sessions at once with a model that takes a second: time in all, lag, memory.

The gateway, the model and the terminals (one connection a session) are three processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import uvloop
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config

from benchmarks.parties import Terminal
from benchmarks.report import Row, cpu_seconds, milliseconds, percentile, print_table, rss_mb

__all__ = ["run"]

_MODEL_SECONDS = 1.0
_OPENED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class _Crowd:
    total: float
    p99: float
    side_by_side: int
    lag: dict[str, float]
    rss: float
    gateway_cpu: float
    client_cpu: float


def run() -> list[Row]:
    rows: list[Row] = []
    for sessions, budget in ((500, 2.0), (1000, 3.0)):
        crowd = uvloop.run(_measure(sessions))
        rows += [
            Row(
                f"{sessions} turns at once, model takes {_MODEL_SECONDS:.0f} s: in all",
                f"{crowd.total:.2f} s (p99 of a turn {crowd.p99:.2f} s)",
                f"≤ {budget:.0f} s",
                crowd.total <= budget,
            ),
            Row(
                "  side by side, as the model saw it",
                str(crowd.side_by_side),
                f"≥ {sessions}",
                crowd.side_by_side >= sessions,
            ),
            Row(
                "  event-loop lag p50 / p99 / most",
                " / ".join(milliseconds(crowd.lag[name]) for name in ("p50", "p99", "most")),
            ),
            Row("  memory of the gateway after it", f"{crowd.rss:.0f} MB"),
            Row(
                "  processor time of gateway / terminals",
                f"{crowd.gateway_cpu:.2f} / {crowd.client_cpu:.2f} s",
            ),
        ]
    return rows


async def _measure(sessions: int) -> _Crowd:
    with (
        tempfile.TemporaryDirectory(prefix="parley-") as folder,
        ModelProcess(delay=_MODEL_SECONDS) as model,
    ):
        home = Path(folder)
        write_config(home, model_url=model.base_url)
        with GatewayProcess(home, command=("-m", "benchmarks.measured_gateway")) as gateway:
            gateway.start()
            await gateway.until_ready()
            terminals: list[Terminal] = []
            for first in range(0, sessions, _OPENED_AT_ONCE):
                numbers = range(first, min(first + _OPENED_AT_ONCE, sessions))
                opening = (Terminal.open(gateway.socket, f"s{number}") for number in numbers)
                terminals += await asyncio.gather(*opening)
            await terminals[0].ask("warm up")
            os.kill(gateway.pid, signal.SIGUSR1)
            gateway_cpu, client_cpu = cpu_seconds(gateway.pid), time.process_time()
            started = time.perf_counter()
            answers = await asyncio.gather(*(terminal.ask("hi") for terminal in terminals))
            total = time.perf_counter() - started
            client_cpu = time.process_time() - client_cpu
            gateway_cpu = cpu_seconds(gateway.pid) - gateway_cpu
            rss = rss_mb(gateway.pid)
            with urllib.request.urlopen(f"http://127.0.0.1:{model.port}/stats") as answer:
                stats: dict[str, int] = json.load(answer)
            for terminal in terminals:
                await terminal.close()
            await gateway.stop()
            lag: dict[str, float] = json.loads((home / "lag.json").read_text())
    return _Crowd(
        total=total,
        p99=percentile([answer.reply for answer in answers], 99),
        side_by_side=stats["max_open_streams"],
        lag=lag,
        rss=rss,
        gateway_cpu=gateway_cpu,
        client_cpu=client_cpu,
    )


if __name__ == "__main__":
    print_table("sessions", run())
