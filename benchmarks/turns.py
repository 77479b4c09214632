"""What a turn adds to the model's own time, how many go a second, and whether age matters.

The model answers at once, from a process of its own. `direct` calls it through the same provider
and nothing else; `in process` is the gateway with a surface that has no wire; `terminal` is a
gateway process and its socket. All three take turns, so that noise meets them alike.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config

from benchmarks.in_process import gateway_here
from benchmarks.parties import Answer, Bystander, Terminal
from benchmarks.report import Row, cpu_seconds, median, milliseconds, percentile, print_table
from parley.agent.providers import build_provider
from parley.agent.providers.base import ModelRequest, Provider
from parley.config import load_settings
from parley.profiles import Profile
from parley.protocol import ChatMessage

__all__ = ["run"]

_ROUNDS = 300
_WARM = 20
_CONVERSATIONS = 20
_CROWDS = (10, 50, 100, 200)
_CROWD_SECONDS = 3.0
_AGES = (10, 100, 400)


@dataclass(slots=True)
class _Samples:
    direct: list[float] = field(default_factory=list)
    in_process: list[Answer] = field(default_factory=list)
    terminal: list[Answer] = field(default_factory=list)


def run() -> list[Row]:
    return uvloop.run(_run())


async def _run() -> list[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="parley-") as first,
        tempfile.TemporaryDirectory(prefix="parley-") as second,
        ModelProcess() as model,
    ):
        write_config(Path(second), model_url=model.base_url)
        inside = write_config(Path(first), model_url=model.base_url)
        with GatewayProcess(Path(second)) as gateway:
            gateway.start()
            await gateway.until_ready()
            asked = await _bytes_asked(gateway.socket, model.port)
            async with gateway_here(inside) as here:
                samples = await _take_turns(inside, here.surface, gateway.socket)
            rows = [*_turn_rows(samples), asked]
            rows += [await _crowd(gateway, people) for people in _CROWDS]
            rows.append(await _ages(gateway.socket))
            await gateway.stop()
    return rows


async def _take_turns(profile: Profile, surface: Bystander, socket: Path) -> _Samples:
    samples = _Samples()
    provider = build_provider(load_settings(profile), lambda _: None)
    terminals = [await Terminal.open(socket, f"t{number}") for number in range(_CONVERSATIONS)]
    for number in range(_WARM + _ROUNDS):
        which = number % _CONVERSATIONS
        took = (
            await _call(provider),
            await surface.ask(f"b{which}", "hi"),
            await terminals[which].ask("hi"),
        )
        if number >= _WARM:
            samples.direct.append(took[0])
            samples.in_process.append(took[1])
            samples.terminal.append(took[2])
    for terminal in terminals:
        await terminal.close()
    await provider.close()
    return samples


async def _call(provider: Provider) -> float:
    request = ModelRequest("You are brief.", (ChatMessage("user", "hi"),))
    started = time.perf_counter()
    async for _ in provider.stream(request):
        pass
    return time.perf_counter() - started


def _turn_rows(samples: _Samples) -> list[Row]:
    direct = (median(samples.direct), percentile(samples.direct, 99))
    rows = [Row("the model alone, p50 / p99", _pair(*direct))]
    for name, answers in (("in process", samples.in_process), ("terminal", samples.terminal)):
        replies = [answer.reply for answer in answers]
        p50, p99 = median(replies), percentile(replies, 99)
        first = median([answer.first_text for answer in answers])
        rows += [
            Row(
                f"a turn, {name}, p50 / p99",
                _pair(p50, p99),
                "≤ 5 / ≤ 15 ms",
                p50 <= 0.005 and p99 <= 0.015,
            ),
            Row(f"  added to the model alone, {name}", _pair(p50 - direct[0], p99 - direct[1])),
            Row(
                f"  first streamed text, {name}, p50", milliseconds(first), "≤ 4 ms", first <= 0.004
            ),
        ]
    return rows


async def _bytes_asked(socket: Path, port: int) -> Row:
    """How much a model is sent for one word, tools and all."""
    terminal = await Terminal.open(socket, "first")
    await terminal.ask("hi")
    await terminal.close()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/requests") as answer:
        size = len(answer.read())
    return Row("bytes sent to the model for “hi”", f"{size:,}", "≤ 8,000", size <= 8000)


async def _crowd(gateway: GatewayProcess, people: int) -> Row:
    """Everyone asks again as soon as they are answered."""
    terminals = [await Terminal.open(gateway.socket, f"n{people}-{n}") for n in range(people)]
    took: list[float] = []
    cpu = cpu_seconds(gateway.pid)
    started = time.perf_counter()

    async def talk(terminal: Terminal) -> None:
        while time.perf_counter() - started < _CROWD_SECONDS:
            took.append((await terminal.ask("hi")).reply)

    await asyncio.gather(*(talk(terminal) for terminal in terminals))
    rate = len(took) / (time.perf_counter() - started)
    p99 = percentile(took, 99)
    cost = (cpu_seconds(gateway.pid) - cpu) / len(took)
    for terminal in terminals:
        await terminal.close()
    return Row(
        f"turns a second, {people} conversations",
        f"{rate:.0f} (p99 {milliseconds(p99)}, {cost * 1000:.2f} ms of processor each)",
        "≥ 400, p99 ≤ 1 s",
        rate >= 400 and p99 <= 1.0,
    )


async def _ages(socket: Path) -> Row:
    """The same session, young and old."""
    terminal = await Terminal.open(socket, "old")
    took = [(await terminal.ask("hi")).reply for _ in range(max(_AGES) + 10)]
    await terminal.close()
    at = [median(took[age - 8 : age + 8]) for age in _AGES]
    growth = at[-1] / at[0]
    return Row(
        f"the same session at turn {', '.join(map(str, _AGES))}",
        f"{' / '.join(map(milliseconds, at))} ({growth:.1f}×)",
        "flat (≤ 1.3×)",
        growth <= 1.3,
    )


def _pair(p50: float, p99: float) -> str:
    return f"{milliseconds(p50)} / {milliseconds(p99)}"


if __name__ == "__main__":
    print_table("turns", run())
