"""What a server adds to an instant model's own time, for programs that ask it over HTTP.

The model answers at once, from a process of its own. It is asked directly, through Parley, and
through the servers of other agents where they are named: `python -m benchmarks.api hermes nanobot`.
All of them take turns in one run, so that noise meets them alike; the ratios are of that run.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

import uvloop
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config

from benchmarks.api_load import Door, Load, load
from benchmarks.peers import PEERS, PeerFault, Serving, free_port, serve, until_answers
from benchmarks.report import (
    Row,
    cpu_seconds,
    median,
    milliseconds,
    percentile,
    print_table,
    rss_mb,
)

__all__ = ["run"]

_CLIENTS = (1, 10, 100, 200, 500)
_ROUNDS = 2
_SECONDS = 2.0
_ANSWERED_WITHIN = 180.0
_SLOW_SECONDS = 15.0
_WARM_CLIENTS, _WARM_SECONDS = 4, 1.0
_SETTLE_SECONDS = 2.0
_QUIET_SECONDS, _QUIET_WITHIN = 0.25, 120.0

_Opening: TypeAlias = Callable[[Path, str], AbstractAsyncContextManager[Serving]]
"""From a home and the model's address to a server that answers."""


@dataclass(slots=True)
class _Party:
    """Somebody who is asked, and what came of it with so many clients."""

    name: str
    door: Door
    pid: int | None = None
    idle: float = 0.0
    after: float = 0.0
    loads: dict[int, Load] = field(default_factory=dict)


def run(peers: Sequence[str] = ()) -> list[Row]:
    return uvloop.run(_run(peers))


async def _run(peers: Sequence[str]) -> list[Row]:
    openings: list[tuple[str, _Opening]] = [("Parley", _parley)]
    openings += [(PEERS[name].title, partial(serve, name)) for name in peers]
    absent: list[Row] = []
    with (
        ModelProcess() as model,
        tempfile.TemporaryDirectory(prefix="parley-", ignore_cleanup_errors=True) as folder,
    ):
        alone = _Party("the model alone", Door(port=model.port, model="scripted"))
        servers: list[_Party] = []
        async with AsyncExitStack() as stack:
            for title, opening in openings:
                home = Path(folder) / title.split()[0].lower()
                home.mkdir()
                try:
                    serving = await stack.enter_async_context(opening(home, model.base_url))
                    servers.append(await _warmed(serving))
                except PeerFault as fault:
                    ok = False if title == "Parley" else None
                    absent.append(Row(title, f"not measured: {fault}", ok=ok))
            for clients in _CLIENTS:
                await _take_turns([alone, *servers], clients)
            for server in servers:
                server.after = _memory(server.pid)
    return [*absent, *_rows(alone, servers)]


@asynccontextmanager
async def _parley(home: Path, model_url: str) -> AsyncIterator[Serving]:
    port = free_port()
    write_config(home, model_url=model_url, gateway={"port": port})
    with GatewayProcess(home) as gateway:
        gateway.start()
        await gateway.until_ready()
        await until_answers(f"http://127.0.0.1:{port}/readyz")
        key = home / "api.key"
        if not key.exists():
            raise PeerFault("Its gateway made no key for programs.")
        door = Door(
            port=port,
            model="parley",
            key=key.read_text().strip(),
            session_header="X-Parley-Session-Id",
        )
        yield Serving("Parley", door, gateway.pid)
        await gateway.stop()


async def _warmed(serving: Serving) -> _Party:
    """Its memory before anybody has asked; then what only the first turns cost."""
    await asyncio.sleep(_SETTLE_SECONDS)
    party = _Party(serving.name, serving.door, serving.pid)
    party.idle = _memory(party.pid)
    seen = await load(
        party.door, _WARM_CLIENTS, seconds=_WARM_SECONDS, answered_within=_ANSWERED_WITHIN
    )
    if not seen.turns:
        raise PeerFault(f"It answered nothing properly; {seen.problem or 'nothing came'}.")
    return party


async def _take_turns(parties: Sequence[_Party], clients: int) -> None:
    for _ in range(_ROUNDS):
        for party in parties:
            before = party.loads.setdefault(clients, Load())
            if before.seconds > _SLOW_SECONDS:
                continue  # it has had its time and that of others
            cpu = _processor(party.pid)
            before += await load(
                party.door, clients, seconds=_SECONDS, answered_within=_ANSWERED_WITHIN
            )
            await _until_quiet(party.pid)
            before.server_cpu += _processor(party.pid) - cpu


async def _until_quiet(pid: int | None) -> None:
    """Who still works on what was asked before is not to disturb the next one."""
    waited = 0.0
    while waited < _QUIET_WITHIN:
        before = _processor(pid)
        await asyncio.sleep(_QUIET_SECONDS)
        waited += _QUIET_SECONDS
        if _processor(pid) - before <= 0.1 * _QUIET_SECONDS:
            return


def _processor(pid: int | None) -> float:
    return sum(map(cpu_seconds, _family(pid)))


def _memory(pid: int | None) -> float:
    return sum(map(rss_mb, _family(pid)))


def _family(pid: int | None) -> list[int]:
    """This process and all that it started, as far as the system tells."""
    if pid is None:
        return []
    family = [pid]
    for member in family:
        for task in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                family += map(int, task.read_text().split())
            except OSError:
                continue  # it has just ended
    return family


# ── the table ──


def _rows(alone: _Party, servers: Sequence[_Party]) -> list[Row]:
    ours = next((server for server in servers if server.name == "Parley"), None)
    rows: list[Row] = []
    for clients in _CLIENTS:
        direct = alone.loads[clients]
        many = f"{clients} client{'' if clients == 1 else 's'}"
        rows.append(Row(f"{many}, {alone.name}", _told(direct)))
        for server in servers:
            seen = server.loads[clients]
            budget, ok = _budget(clients, seen) if server is ours else ("", None)
            rows.append(Row(f"{many}, {server.name}", _told(seen, direct), budget, ok))
            if ours is not None and server is not ours:
                rows.append(Row("  × Parley", _ratios(seen, ours.loads[clients], direct)))
    for server in servers:
        held, budget, ok = f"{server.idle:.0f} MB / {server.after:.0f} MB", "", None
        if server is ours:
            budget, ok = "≤ 80 MB idle", server.idle <= 80
        elif ours is not None:
            held += f" ({server.idle / ours.idle:.1f}× / {server.after / ours.after:.1f}× Parley)"
        rows.append(Row(f"memory idle / after all of it, {server.name}", held, budget, ok))
    return rows


def _told(seen: Load, direct: Load | None = None) -> str:
    """`direct` is the model alone with as many clients."""
    if not seen.turns:
        return f"no answer: {seen.problem or f'nothing came within {_ANSWERED_WITHIN:.0f} s'}"
    p50, p99 = _whole(seen)
    told = f"{_time(p50)} / {_time(p99)}"
    if direct is not None:
        added = [_time(value) for value in _added(seen, direct)]
        told += f" (added {' / '.join(added)})"
    told += f", first text {_time(_first_text(seen))}, {_rate(seen)} a second"
    if direct is None:
        told += f", {seen.client_cpu / seen.seconds:.0%} of a processor for the clients"
    else:
        told += f", {milliseconds(_processor_each(seen))} of processor each"
    if seen.faults:
        told += f", {seen.faults} failed ({seen.problem})"
    if seen.unanswered:
        told += f", {seen.unanswered} unanswered after {_ANSWERED_WITHIN:.0f} s"
    return told


def _budget(clients: int, seen: Load) -> tuple[str, bool | None]:
    p50, p99 = _whole(seen)
    whole = not seen.faults and not seen.unanswered
    if clients == 1:
        soon = p50 <= 0.005 and p99 <= 0.015 and _first_text(seen) <= 0.004
        return "≤ 5 / ≤ 15 ms, first text ≤ 4 ms", whole and soon
    if clients < 200:
        return "≥ 400 a second", whole and seen.rate >= 400
    if clients == 200:
        return "≥ 400 a second, p99 ≤ 1 s", whole and seen.rate >= 400 and p99 <= 1.0
    return "all answered", whole


def _ratios(seen: Load, ours: Load, direct: Load) -> str:
    if not seen.turns or not ours.turns:
        return "no ratio: one of the two answered nothing"
    totals = zip(_whole(seen), _whole(ours), strict=True)
    added = zip(_added(seen, direct), _added(ours, direct), strict=True)
    return (
        f"{_times(totals)} (added {_times(added)}), "
        f"first text {_first_text(seen) / _first_text(ours):.1f}×, "
        f"turns a second 1/{ours.rate / seen.rate:.0f}, "
        f"processor {_processor_each(seen) / _processor_each(ours):.0f}×"
    )


def _times(pairs: Iterable[tuple[float, float]]) -> str:
    return " / ".join(f"{theirs / ours:.1f}×" if ours > 0 else "–" for theirs, ours in pairs)


def _whole(seen: Load) -> tuple[float, float]:
    """p50 and p99 of a turn."""
    took = [turn.whole for turn in seen.turns]
    return median(took), percentile(took, 99)


def _added(seen: Load, direct: Load) -> tuple[float, float]:
    (p50, p99), (alone50, alone99) = _whole(seen), _whole(direct)
    return p50 - alone50, p99 - alone99


def _first_text(seen: Load) -> float:
    return median([turn.first_text for turn in seen.turns])


def _processor_each(seen: Load) -> float:
    return seen.server_cpu / len(seen.turns)


def _time(seconds: float) -> str:
    return milliseconds(seconds) if seconds < 2 else f"{seconds:.1f} s"


def _rate(seen: Load) -> str:
    return f"{seen.rate:.0f}" if seen.rate >= 10 else f"{seen.rate:.1f}"


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        print(f"There is no server {unknown[0]} to compare with; there are: {', '.join(PEERS)}.")
        return 2
    rows = run(names)
    print_table("api", rows)
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
