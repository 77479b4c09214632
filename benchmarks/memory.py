"""Whether tending memory is felt, what a look at all sessions costs, and what folding saves.

Turns are measured through the terminal's socket of a gateway process, in blocks that take turns:
while nothing is due, and while a slow model is asked about other conversations. A look is measured
on stores of several sizes. What is sent to the model is counted over a session of 300 turns.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from tests.servers.extractor import Asked, Extractor
from tests.servers.gateway_process import GatewayProcess, write_config
from tests.servers.scripted_model import ScriptedModel

from benchmarks.conversation_script import TURNS, build_script
from benchmarks.in_process import gateway_here
from benchmarks.long_conversation import small_window
from benchmarks.parties import Terminal
from benchmarks.report import Row, median, milliseconds, percentile, print_table
from benchmarks.stored import fill
from parley.agent.providers import build_provider
from parley.config import load_settings
from parley.memory.consolidator import MemoryConsolidator, Prompt
from parley.memory.places import places_of
from parley.profiles import DEFAULT_PROFILE, Profile
from parley.protocol import ChatMessage
from parley.storage.memory import Tended
from parley.storage.sqlite import SqliteStore
from parley.storage.sqlite.engine import connect

__all__ = ["run"]

_INTERVAL = 0.25
_SLOW = 0.5
_TENDED_WITHIN = 120.0
_OTHERS = 8
_PEOPLE = 20
_BLOCKS = 10
_BLOCK = 50
_WARM = 40
_SIZES = (10, 1_000, 100_000)
_DUE = 50
_LOOKS = 30
_FULL_LOOKS = 7
_SHOWN = (10, 50, 100, 200, 300)
_WINDOW = 8_000


def run() -> list[Row]:
    return [*uvloop.run(_beside()), *_looks(), *uvloop.run(_sent())]


# ── turns beside it ───────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Samples:
    quiet: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    """Into the very conversations that the model is being asked about."""


async def _beside() -> list[Row]:
    samples = _Samples()
    script = Extractor(delay=_SLOW)
    with tempfile.TemporaryDirectory(prefix="parley-") as folder:
        async with ScriptedModel(script) as model:
            profile = write_config(Path(folder), model_url=model.base_url)
            _set_memory(profile, idle_check_interval=_INTERVAL)
            with GatewayProcess(profile.home) as gateway:
                gateway.start()
                await gateway.until_ready()
                await _take_turns(gateway, model, samples)
                await gateway.stop()
    ratio = median(samples.busy) / median(samples.quiet)
    within = median(samples.inside) / median(samples.quiet)
    return [
        Row("a turn while no memory is tended, p50 / p99", _spread(samples.quiet)),
        Row("a turn while memory is tended beside it, p50 / p99", _spread(samples.busy)),
        Row("  against the first, p50", f"{ratio:.2f}×", "no more (≤ 1.15×)", ratio <= 1.15),
        Row(
            "a turn that breaks off the tending of its own conversation, p50 / p99",
            f"{_spread(samples.inside)} ({len(samples.inside)} of them)",
        ),
        Row("  against the first, p50", f"{within:.2f}×", "≤ 1.5×", within <= 1.5),
    ]


async def _take_turns(gateway: GatewayProcess, model: ScriptedModel, samples: _Samples) -> None:
    socket, file = gateway.socket, gateway.profile.database_file
    people = itertools.cycle([await Terminal.open(socket, f"p{n}") for n in range(_PEOPLE)])
    others = [await Terminal.open(socket, f"other-{number}") for number in range(_OTHERS)]
    for _ in range(_WARM):
        await next(people).ask("hi")
    for number in range(_BLOCKS):
        await _until_tended(file)
        samples.quiet += [(await next(people).ask("hi")).reply for _ in range(_BLOCK)]
        for other in others:
            await other.ask(f"By the way, my lucky number is {number}, and it is not a secret.")
        await model.until(lambda it: it.open_streams > 0, seconds=60)
        for _ in range(_BLOCK):
            before, took = model.open_streams, (await next(people).ask("hi")).reply
            if before and model.open_streams:
                samples.busy.append(took)
        for other in others:
            broken_off, took = model.aborted, (await other.ask("hi")).reply
            if model.aborted > broken_off:
                samples.inside.append(took)
    for terminal in (*itertools.islice(people, _PEOPLE), *others):
        await terminal.close()


async def _until_tended(file: Path) -> None:
    """Nothing is due, and nothing is under way."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        async with asyncio.timeout(_TENDED_WITHIN):
            while db.execute("SELECT 1 FROM session WHERE tend_at IS NOT NULL LIMIT 1").fetchone():
                await asyncio.sleep(_INTERVAL / 2)


def _set_memory(profile: Profile, **values: object) -> None:
    config = json.loads(profile.config_file.read_text())
    profile.config_file.write_text(json.dumps({**config, "memory": values}))


# ── looks ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Looks:
    due: int
    nothing: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)


def _looks() -> list[Row]:
    found: dict[int, _Looks] = {}
    for size in _SIZES:
        with tempfile.TemporaryDirectory(prefix="parley-") as folder:
            profile = Profile(DEFAULT_PROFILE, Path(folder))
            fill(profile.database_file, size)
            found[size] = uvloop.run(_look(profile, min(size, _DUE)))
    rows: list[Row] = []
    for size, looks in found.items():
        p50 = median(looks.nothing)
        rows += [
            Row(
                f"a look at {size:,} sessions, nothing due, p50 / p99",
                _spread(looks.nothing),
                "≤ 1 ms",
                p50 <= 0.001,
            ),
            Row(f"  {looks.due} due: asked about, and stored", milliseconds(median(looks.full))),
        ]
    few, many = (median(found[size].full) for size in _SIZES[1:])
    title = f"growth from {_SIZES[1]:,} to {_SIZES[2]:,} sessions, {_DUE} due"
    rows.append(Row(title, f"{many / few:.2f}×", "flat (≤ 1.3×)", many / few <= 1.3))
    return rows


async def _look(profile: Profile, due: int) -> _Looks:
    store = SqliteStore.open(profile.database_file)
    async with ScriptedModel(Extractor()) as model:
        write_config(profile.home, model_url=model.base_url)
        provider = build_provider(load_settings(profile), lambda _: None)

        async def prompt(session: Tended, history: Sequence[ChatMessage]) -> Prompt:
            return Prompt("You are brief.", tuple(history), (), provider)

        consolidator = MemoryConsolidator(
            profile.home,
            None,
            None,
            store,
            None,
            prompt,
            tuple,
            place_of=lambda session: places_of(session.key, session.source).write,
        )
        looks = _Looks(due)
        _put_in_line(profile.database_file, 0)
        for _ in range(_LOOKS):
            looks.nothing.append(await _tick(consolidator, 0))
        for _ in range(_FULL_LOOKS):
            _put_in_line(profile.database_file, due)
            looks.full.append(await _tick(consolidator, due))
        assert model.total == due * _FULL_LOOKS, "it asked about others, or not about all"
        await consolidator.stop_background_task()
        await provider.close()
    await store.close()
    return looks


async def _tick(consolidator: MemoryConsolidator, due: int) -> float:
    started = time.perf_counter()
    tended = await consolidator.tick()
    took = time.perf_counter() - started
    assert tended == due
    return took


def _put_in_line(file: Path, sessions: int) -> None:
    """So many of those that are stored, and no others; each has said something worth a call."""
    with closing(connect(file)) as db:
        db.execute("BEGIN")
        db.execute("UPDATE session SET tend_at = NULL WHERE tend_at IS NOT NULL")
        due = "SELECT id FROM session ORDER BY id LIMIT ?"
        db.execute(f"UPDATE session SET tend_at = 1, learned = 0 WHERE id IN ({due})", (sessions,))
        db.execute(
            "UPDATE entry SET body = json_set(body, '$.text', ?)"
            f" WHERE json_extract(body, '$.role') = 'user' AND session IN ({due})",
            ("Hello there, my lucky number is seven, and it always was.", sessions),
        )
        db.execute("COMMIT")


# ── what is sent ──────────────────────────────────────────────────────────────────────────────


async def _sent() -> list[Row]:
    folded = await _talk(_WINDOW, folds=True)
    whole = await _talk(2_000_000, folds=False)
    rows = []
    for turn in _SHOWN:
        one, other = _turns(folded)[turn - 1], _turns(whole)[turn - 1]
        rows.append(
            Row(
                f"sent at turn {turn}: folded / all of it",
                f"{one.tokens:,} / {other.tokens:,} tokens, {one.size:,} / {other.size:,} bytes",
            )
        )
    spent, all_of_it = (sum(asked.tokens for asked in each) for each in (folded, whole))
    most = max(asked.tokens for asked in folded)
    return [
        *rows,
        Row(
            f"tokens sent in {TURNS} turns, with what folding costs / all of it",
            f"{spent:,} / {all_of_it:,} ({spent / all_of_it:.2f}×)",
            "less",
            spent < all_of_it,
        ),
        Row("  largest request", f"{most:,} tokens", f"≤ {_WINDOW:,}", most <= _WINDOW),
    ]


def _turns(asked: Sequence[Asked]) -> list[Asked]:
    return [each for each in asked if each.what == "turn"]


async def _talk(window: int, *, folds: bool) -> list[Asked]:
    """All requests of a conversation in which nobody rests."""
    model = Extractor()
    with tempfile.TemporaryDirectory(prefix="parley-") as folder:
        async with ScriptedModel(model) as server:
            profile = write_config(Path(folder), model_url=server.base_url)
            settings = small_window(
                load_settings(profile), "scripted", None, window=window, interval=0.05
            )
            memory = settings.memory.model_copy(update={"enabled": folds})
            settings = settings.model_copy(update={"memory": memory})
            async with gateway_here(profile, settings) as here:
                for said in build_script():
                    await here.surface.ask(
                        "long", "Go on." if said.what == "forgotten" else said.text
                    )
    return model.asked


def _spread(values: Sequence[float]) -> str:
    return f"{milliseconds(median(values))} / {milliseconds(percentile(values, 99))}"


if __name__ == "__main__":
    print_table("memory", run())
