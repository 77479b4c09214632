"""What a session write costs with few and with many sessions stored, alone and side by side."""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from benchmarks.report import Row, median, milliseconds, percentile, print_table
from benchmarks.stored import PLATFORM, fill, greeting, lane_of
from parley.gateway.lanes import Lanes, RunningTurn
from parley.protocol import InboundMessage, SessionSource
from parley.storage.sqlite import SqliteStore

__all__ = ["run"]

_SIZES = (10, 1_000, 100_000)
_WARM = 50
_CYCLES = 400
_PEOPLE = 64
_CROWD_SECONDS = 3.0
_OWNER = "benchmark"


@dataclass(slots=True)
class _Cost:
    writes: list[float] = field(default_factory=list)
    """Each of the four writes on its own."""
    cycles: list[float] = field(default_factory=list)
    """Submit, claim, commit, delivered: all that a turn writes."""
    rate: float = 0.0


def run() -> list[Row]:
    costs: dict[int, _Cost] = {}
    for size in _SIZES:
        with tempfile.TemporaryDirectory(prefix="parley-") as folder:
            file = Path(folder) / "parley.db"
            fill(file, size)
            costs[size] = uvloop.run(_measure(file, size))
    rows: list[Row] = []
    for size, cost in costs.items():
        write = median(cost.writes)
        rows += [
            Row(
                f"session write, {size:,} sessions, p50 / p99",
                _spread(cost.writes),
                "≤ 2 ms",
                write <= 0.002,
            ),
            Row(
                f"  submit + claim + commit + delivered, {size:,} sessions, p50 / p99",
                _spread(cost.cycles),
            ),
            Row(f"  such cycles a second, {_PEOPLE} side by side", f"{cost.rate:.0f}"),
        ]
    growth = median(costs[_SIZES[-1]].cycles) / median(costs[_SIZES[0]].cycles)
    title = f"growth from {_SIZES[0]} to {_SIZES[-1]:,} sessions"
    rows.append(Row(title, f"{growth:.2f}×", "flat (≤ 1.3×)", growth <= 1.3))
    return rows


async def _measure(file: Path, size: int) -> _Cost:
    store = SqliteStore.open(file)
    cost = _Cost()
    chance = random.Random(size)
    for number in range(_WARM + _CYCLES):
        took = await _cycle(store, chance.randint(1, size), number)
        if number >= _WARM:
            cost.writes += took
            cost.cycles.append(sum(took))
    cost.rate = await _side_by_side(store, size)
    await store.close()
    return cost


async def _cycle(store: SqliteStore, session: int, number: int) -> list[float]:
    source = SessionSource(PLATFORM, chat_id=f"stored-{session}", user_id="owner")
    message = InboundMessage(source, "hello again", event_id=f"m{number}")
    times = [time.perf_counter()]
    await store.submit(lane_of(session), f"cycle:{number}", message, user="owner")
    times.append(time.perf_counter())
    (claim,) = await store.claim(_OWNER, 1, (PLATFORM,))
    times.append(time.perf_counter())
    (handed,) = (await store.commit(claim, greeting(claim.turn, source))).handed
    times.append(time.perf_counter())
    await store.delivered(handed.id)
    times.append(time.perf_counter())
    return [later - earlier for earlier, later in itertools.pairwise(times)]


async def _side_by_side(store: SqliteStore, size: int) -> float:
    """Cycles a second when many lanes are busy, claimed as the gateway claims them."""
    lanes = Lanes(store, owner=_OWNER, platforms=(PLATFORM,), concurrency=1000)
    done: dict[str, asyncio.Future[None]] = {}

    async def handler(turn: RunningTurn) -> None:
        source = turn.claim.source
        for handed in await turn.commit(greeting(turn.claim.turn, source)):
            await store.delivered(handed.id)
        done[turn.messages[0].message.event_id].set_result(None)

    started = time.perf_counter()
    counts = [0] * _PEOPLE

    async def person(number: int) -> None:
        lane = size + number + 1
        source = SessionSource(PLATFORM, chat_id=f"stored-{lane}", user_id="owner")
        while time.perf_counter() - started < _CROWD_SECONDS:
            event = f"p{number}-{counts[number]}"
            answered = done[event] = asyncio.get_running_loop().create_future()
            message = InboundMessage(source, "hello again", event)
            await lanes.submit(lane_of(lane), event, message, user="owner")
            await answered
            del done[event]
            counts[number] += 1

    serving = asyncio.create_task(lanes.serve(handler))
    await asyncio.gather(*(person(number) for number in range(_PEOPLE)))
    rate = sum(counts) / (time.perf_counter() - started)
    await lanes.drain(1.0)
    serving.cancel()
    await asyncio.wait([serving])
    return rate


def _spread(values: list[float]) -> str:
    return f"{milliseconds(median(values))} / {milliseconds(percentile(values, 99))}"


if __name__ == "__main__":
    print_table("storage", run())
