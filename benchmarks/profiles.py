"""Many profiles in one gateway: what 50 of them cost to start, to hold and to talk to, and what
one more adds.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression

import uvloop
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config

from benchmarks.footprint import Footprint, footprint
from benchmarks.parties import Terminal
from benchmarks.report import Row, cpu_seconds, median, milliseconds, percentile, print_table
from parley.gateway.home import socket_path
from parley.profiles import Profile

__all__ = ["run"]

_COUNTS = (1, 10, 25, 50)
_MOST = _COUNTS[-1]
_TIMES = 3
_STARTS_SECONDS = 16.0
_SETTLE_SECONDS = 0.5
_IDLE_SECONDS = 4.0
_READY_WITHIN = 30.0
_FOUND_WITHIN = 20.0
_WARM, _TURNS = 10, 100
_EACH = 4
_CROWD_SECONDS = 3.0


def run() -> list[Row]:
    return uvloop.run(_run())


async def _run() -> list[Row]:
    with ModelProcess() as model, tempfile.TemporaryDirectory(prefix="parley-") as folder:
        houses = [_House.make(Path(folder) / str(count), count, model) for count in _COUNTS]
        starts = [_Starts() for _ in houses]
        began = time.perf_counter()
        for number in range(_TIMES):
            if number and time.perf_counter() - began > _STARTS_SECONDS:
                break  # a busy machine: fewer of them
            for house, seen in zip(houses, starts, strict=True):
                await _start_empty(house, seen)
                await _start_again(house, seen)
        rows = _start_rows(starts)
        one, many = houses[0], houses[-1]
        async with _serve(one) as gateway_of_one, _serve(many) as gateway:
            rows += await _talk(one, many)
            rows += [
                await _crowd(gateway_of_one.pid, one.profiles, _EACH * _MOST),
                await _crowd(gateway.pid, many.profiles, _EACH),
                await _idle(gateway.pid),
                await _newcomer(many, model),
            ]
    return rows


# ── a house of profiles ──


@dataclass(frozen=True, slots=True)
class _House:
    """So many profiles, `default` first."""

    profiles: list[Profile]

    @classmethod
    def make(cls, home: Path, count: int, model: ModelProcess) -> _House:
        rules = {"multiplex_profiles": True}
        profiles = [write_config(home, model_url=model.base_url, gateway=rules)]
        profiles[0].soul_file.write_text("You are the first.")
        for number in range(1, count):
            name = f"p{number:02}"
            profiles.append(_make_named(home / "profiles" / name, name, model))
        return cls(profiles)

    @property
    def home(self) -> Path:
        return self.profiles[0].home

    def forget(self) -> None:
        """As if it had never been served."""
        for profile in self.profiles:
            for file in profile.home.glob("parley.db*"):
                file.unlink()


def _make_named(home: Path, name: str, model: ModelProcess) -> Profile:
    profile = Profile(name, write_config(home, model_url=model.base_url).home)
    profile.soul_file.write_text(f"You are {name}.")
    return profile


@asynccontextmanager
async def _serve(house: _House) -> AsyncIterator[GatewayProcess]:
    """A gateway in which every profile of the house can be talked to; stopped on the way out."""
    with GatewayProcess(house.home) as gateway:
        gateway.start()
        try:
            async with asyncio.timeout(_READY_WITHIN):
                while not all(socket_path(one).exists() for one in reversed(house.profiles)):
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise RuntimeError(f"Not every profile is served:\n{gateway.output}") from None
        await gateway.until_ready()
        yield gateway
        await gateway.stop()


# ── starting, and what is held then ──


@dataclass(slots=True)
class _Starts:
    """The starts of one house: on empty homes, and on databases that are there."""

    empty: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)
    held: list[Footprint] = field(default_factory=list)


async def _start_empty(house: _House, seen: _Starts) -> None:
    house.forget()
    started = time.perf_counter()
    async with _serve(house):
        seen.empty.append(time.perf_counter() - started)


async def _start_again(house: _House, seen: _Starts) -> None:
    started = time.perf_counter()
    async with _serve(house) as gateway:
        seen.again.append(time.perf_counter() - started)
        seen.processor.append(cpu_seconds(gateway.pid))
        status = await gateway.status()
        if status is None or status["degraded"]:
            raise RuntimeError(f"Not every profile is served:\n{gateway.output}")
        await asyncio.sleep(_SETTLE_SECONDS)
        seen.held.append(footprint(gateway.pid))
        started = time.perf_counter()
    seen.stops.append(time.perf_counter() - started)


def _start_rows(starts: Sequence[_Starts]) -> list[Row]:
    rows: list[Row] = []
    for count, seen in zip(_COUNTS, starts, strict=True):
        single = count == 1
        soon, held = median(seen.again), seen.held[-1]
        empty, again = _median_and_best(seen.empty), _median_and_best(seen.again)
        rows += [
            Row(
                f"{_profiles(count)}: gateway run until all answer",
                f"{empty} on empty homes, {again} later",
                "≤ 700 ms" if single else "",
                soon <= 0.7 if single else None,
            ),
            Row(
                "  processor time until then / time to stop",
                f"{median(seen.processor):.2f} s / {milliseconds(median(seen.stops))}",
            ),
            Row(
                "  memory, threads, open files",
                f"{held.rss:.0f} MB (PSS {held.pss:.0f}), {held.threads}, {held.files}",
                "≤ 80 MB" if single else "",
                held.rss <= 80 if single else None,
            ),
        ]
    return [*rows, *_slope_rows(starts)]


def _slope_rows(starts: Sequence[_Starts]) -> list[Row]:
    def added(value: Callable[[_Starts], float]) -> float:
        return linear_regression(_COUNTS, [value(seen) for seen in starts]).slope

    # The best of each: what other work takes of the machine does not grow with the profiles.
    times = [
        milliseconds(added(lambda seen: min(seen.empty))),
        milliseconds(added(lambda seen: min(seen.again))),
        milliseconds(added(lambda seen: min(seen.processor))),
    ]
    return [
        Row("one more profile: start empty / later / processor", " / ".join(times)),
        Row(
            "  memory (PSS), threads, open files",
            f"{added(lambda seen: seen.held[-1].rss) * 1000:.0f} KB "
            f"({added(lambda seen: seen.held[-1].pss) * 1000:.0f}), "
            f"{added(lambda seen: seen.held[-1].threads):.1f}, "
            f"{added(lambda seen: seen.held[-1].files):.1f}",
        ),
    ]


# ── talking ──


async def _talk(one: _House, many: _House) -> list[Row]:
    """The same turn in both houses, one beside the other."""
    alone = await Terminal.open(socket_path(one.profiles[0]), "talk")
    among = await Terminal.open(socket_path(many.profiles[_MOST // 2]), "talk")
    took: tuple[list[float], list[float]] = ([], [])
    for number in range(_WARM + _TURNS):
        for terminal, times in zip((alone, among), took, strict=True):
            answer = await terminal.ask("hi")
            if number >= _WARM:
                times.append(answer.reply)
    await alone.close()
    await among.close()
    growth = median(took[1]) / median(took[0])
    pairs = [f"{milliseconds(median(t))} / {milliseconds(percentile(t, 99))}" for t in took]
    return [
        Row("a turn where there is one profile, p50 / p99", pairs[0]),
        Row(
            f"the same among {_MOST}",
            f"{pairs[1]} ({growth:.2f}×)",
            "flat (≤ 1.3×)",
            growth <= 1.3,
        ),
    ]


async def _crowd(pid: int, profiles: Sequence[Profile], each: int) -> Row:
    """Everyone asks again as soon as they are answered."""
    terminals = [
        await Terminal.open(socket_path(profile), f"n{number}")
        for profile in profiles
        for number in range(each)
    ]
    took: list[float] = []

    await asyncio.gather(*(terminal.ask("hi") for terminal in terminals))
    cpu, started = cpu_seconds(pid), time.perf_counter()

    async def talk(terminal: Terminal) -> None:
        while time.perf_counter() - started < _CROWD_SECONDS:
            took.append((await terminal.ask("hi")).reply)

    await asyncio.gather(*(talk(terminal) for terminal in terminals))
    rate = len(took) / (time.perf_counter() - started)
    p99 = percentile(took, 99)
    cost = (cpu_seconds(pid) - cpu) / len(took)
    held = footprint(pid)
    for terminal in terminals:
        await terminal.close()
    return Row(
        f"turns a second, {_profiles(len(profiles))} × {each} conversations",
        f"{rate:.0f} (p99 {milliseconds(p99)}, {cost * 1000:.2f} ms of processor each, "
        f"{held.rss:.0f} MB then)",
        "≥ 400, p99 ≤ 1 s",
        rate >= 400 and p99 <= 1.0,
    )


# ── doing nothing, and one more ──


async def _idle(pid: int) -> Row:
    before = footprint(pid)
    await asyncio.sleep(_IDLE_SECONDS)
    after = footprint(pid)
    busy = (after.cpu - before.cpu) / _IDLE_SECONDS
    wakes = (after.wakes - before.wakes) / _IDLE_SECONDS
    return Row(
        f"{_MOST} profiles, nobody talks",
        f"{busy:.1%} of a processor, {wakes:.0f} wakes a second, {after.rss:.0f} MB",
        "≤ 1 %",
        busy <= 0.01,
    )


async def _newcomer(house: _House, model: ModelProcess) -> Row:
    """Made beside the others and moved in whole, as `parley profile create` does."""
    home = house.home
    _make_named(home / "made", "newcomer", model)
    started = time.perf_counter()
    profile = Profile("newcomer", home / "profiles" / "newcomer")
    (home / "made").rename(profile.home)
    async with asyncio.timeout(_FOUND_WITHIN):
        while not socket_path(profile).exists():
            await asyncio.sleep(0.002)
    found = time.perf_counter() - started
    terminal = await Terminal.open(socket_path(profile), "hello")
    answered = (await terminal.ask("hi")).reply
    await terminal.close()
    return Row(
        "a profile made meanwhile: found / its first turn",
        f"{found:.1f} s / {milliseconds(answered)}",
        "≤ 50 ms",
        answered <= 0.05,
    )


def _profiles(count: int) -> str:
    return f"{count} profile{'' if count == 1 else 's'}"


def _median_and_best(times: Sequence[float]) -> str:
    return f"{milliseconds(median(times))} (best {milliseconds(min(times))})"


if __name__ == "__main__":
    print_table("profiles", run())
