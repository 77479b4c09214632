"""A gateway as `parley gateway run` has it, and beside it a task that measures its own lateness.

Writes `lag.json` (seconds late: p50, p99, most) into its home when it is told to end.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time

import uvloop

from benchmarks.report import median, percentile
from parley.cli._host import hosted_gateway, plan_gateway
from parley.profiles import default_profile

__all__: list[str] = []

_EVERY = 0.005


async def _serve() -> None:
    profile = default_profile()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    late: list[float] = []
    async with hosted_gateway(plan_gateway(profile, alone=False)):
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
        loop.add_signal_handler(signal.SIGUSR1, late.clear)
        measuring = asyncio.create_task(_measure(late))
        await stopped.wait()
        measuring.cancel()
        lag = {"p50": median(late), "p99": percentile(late, 99), "most": max(late, default=0.0)}
        (profile.home / "lag.json").write_text(json.dumps(lag))


async def _measure(late: list[float]) -> None:
    while True:
        due = time.perf_counter() + _EVERY
        await asyncio.sleep(_EVERY)
        late.append(max(0.0, time.perf_counter() - due))


if __name__ == "__main__":
    uvloop.run(_serve())
