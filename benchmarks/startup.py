"""How soon it is there, and how little it holds: start-up, first turn, memory, installed size."""

from __future__ import annotations

import asyncio
import importlib.metadata
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop
from tests.servers.gateway_process import (
    REPOSITORY,
    GatewayProcess,
    ModelProcess,
    environment,
    write_config,
)

from benchmarks.parties import Terminal
from benchmarks.report import Row, median, milliseconds, print_table, rss_mb
from benchmarks.stored import fill

__all__ = ["run"]

_TIMES = 5
_IDLE_SECONDS = 5.0
_TURNS = 500
_STORED = 10_000
_READY_WITHIN = 20.0


def run() -> list[Row]:
    with ModelProcess() as model, tempfile.TemporaryDirectory(prefix="parley-") as folder:
        homes = Path(folder)
        rows = [_version(homes), _script(homes), _one_shot(homes / "once", model.base_url)]
        fill(homes / "stored" / "parley.db", _STORED)
        rows += uvloop.run(_gateway(homes, model.base_url))
    return [*rows, *_installed()]


# ── commands ──


def _version(home: Path) -> Row:
    took = _median_of(lambda: _run_in(home, sys.executable, "-m", "parley", "--version"))
    return Row("parley --version", milliseconds(took), "≤ 200 ms", took <= 0.2)


def _script(home: Path) -> Row:
    what = "./scripts/run --version, second start"
    check = ". scripts/_env.sh; is_installed run local"
    if subprocess.run(["bash", "-c", check], cwd=REPOSITORY, capture_output=True).returncode:
        return Row(what, "skipped: ./scripts/run has not installed this checkout yet")
    took = _median_of(lambda: _run_in(home, "./scripts/run", "--version"))
    return Row(what, milliseconds(took), "≤ 1 s", took <= 1.0)


def _one_shot(home: Path, model_url: str) -> Row:
    write_config(home, model_url=model_url)
    took = _median_of(lambda: _run_in(home, sys.executable, "-m", "parley", "chat", "-m", "hi"))
    return Row("parley chat -m hi, no gateway running", milliseconds(took))


def _median_of(act: Callable[[], None]) -> float:
    took = []
    act()  # the first one finds nothing in the system's caches
    for _ in range(_TIMES):
        started = time.perf_counter()
        act()
        took.append(time.perf_counter() - started)
    return median(took)


def _run_in(home: Path, *command: str) -> None:
    subprocess.run(
        command, cwd=REPOSITORY, env=environment(home), capture_output=True, check=True, timeout=60
    )


# ── a gateway ──


async def _gateway(homes: Path, model_url: str) -> list[Row]:
    ready: list[float] = []
    first_turns: list[float] = []
    for number in range(_TIMES):
        with _started(homes / f"start-{number}", model_url) as (gateway, port):
            ready.append(await _until_ready(gateway, port))
            terminal = await Terminal.open(gateway.socket, "first")
            first_turns.append((await terminal.ask("hi")).reply)
            await terminal.close()
            await gateway.stop()
    idle, after = await _memory(homes / "memory", model_url)
    with _started(homes / "stored", model_url) as (gateway, port):
        await _until_ready(gateway, port)
        await asyncio.sleep(_IDLE_SECONDS)
        more = rss_mb(gateway.pid) - idle
        await gateway.stop()
    soon, first = median(ready), median(first_turns)
    return [
        Row("gateway run until /readyz says so", milliseconds(soon), "≤ 700 ms", soon <= 0.7),
        Row("first turn after that", milliseconds(first), "≤ 50 ms", first <= 0.05),
        Row(f"memory idle, after {_IDLE_SECONDS:.0f} s", _mb(idle), "≤ 80 MB", idle <= 80),
        Row(f"memory after {_TURNS} turns", _mb(after), "≤ 90 MB", after <= 90),
        Row(f"memory for {_STORED:,} stored sessions", f"{more:+.0f} MB", "+ ≤ 5 MB", more <= 5),
    ]


@contextmanager
def _started(home: Path, model_url: str) -> Iterator[tuple[GatewayProcess, int]]:
    """A gateway process, on a port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    write_config(home, model_url=model_url, gateway={"port": port})
    with GatewayProcess(home) as gateway:
        gateway.start()
        yield gateway, port


async def _until_ready(gateway: GatewayProcess, port: int) -> float:
    started = time.perf_counter()
    while time.perf_counter() - started < _READY_WITHIN:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1):
                return time.perf_counter() - started
        except (urllib.error.URLError, OSError):
            await asyncio.sleep(0.005)
    raise RuntimeError(f"The gateway was not ready in time:\n{gateway.output}")


async def _memory(home: Path, model_url: str) -> tuple[float, float]:
    with _started(home, model_url) as (gateway, port):
        await _until_ready(gateway, port)
        await asyncio.sleep(_IDLE_SECONDS)
        idle = rss_mb(gateway.pid)
        terminals = [await Terminal.open(gateway.socket, f"m{number}") for number in range(10)]
        for number in range(_TURNS):
            await terminals[number % len(terminals)].ask("hi")
        after = rss_mb(gateway.pid)
        for terminal in terminals:
            await terminal.close()
        await gateway.stop()
    return idle, after


def _mb(value: float) -> str:
    return f"{value:.0f} MB"


# ── what is installed ──


def _installed() -> list[Row]:
    """Parley and all that its base install brings, as this environment has it."""
    found: dict[str, int] = {}
    waiting = ["parley"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system or Python
        found[name] = sum(
            (file.size or 0) for file in package.files or () if not file.name.endswith(".pyc")
        )
        for wanted in package.requires or ():
            if "extra ==" not in wanted:
                waiting.append(re.split(r"[^A-Za-z0-9._-]", wanted, maxsplit=1)[0])
    source = REPOSITORY / "src" / "parley"
    ours = sum(f.stat().st_size for f in source.rglob("*") if f.is_file() and f.suffix != ".pyc")
    size = (sum(found.values()) + ours) / 1e6
    return [
        Row("packages of the base install", str(len(found)), "≤ 40", len(found) <= 40),
        Row("  their size", _mb(size), "≤ 100 MB", size <= 100),
    ]


if __name__ == "__main__":
    print_table("startup", run())
