"""Kill a gateway again and again while programs have runs there, and count what became of them."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.servers.api_server import local_key
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config
from tests.servers.ports import free_port
from tests.surfaces.api.program import ENDS, Program, Told, last_text

__all__ = ["RunTally", "kill_while_running"]

_SETTLED_WITHIN = 60.0
_BROKEN = (aiohttp.ClientError, ConnectionError, TimeoutError)


@dataclass(slots=True)
class RunTally:
    """What came of it. `faults` says in words what no number here counts."""

    seed: int
    kills: int = 0
    runs: int = 0
    resumed: int = 0
    reconnections: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """Runs whose log is not what was seen of it before."""
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Run:
    """One run, as the program that began it knows it."""

    text: str
    id: str = ""
    seen: list[Told] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return bool(self.seen) and self.seen[-1].name in ENDS


class _Session:
    """A program that begins runs in one conversation, two at a time, and follows each."""

    def __init__(self, name: str, program: Program, chance: random.Random, tally: RunTally) -> None:
        self.name = name
        self.runs: list[_Run] = []
        self._program = program
        self._chance = chance
        self._tally = tally

    async def talk(self, going: asyncio.Event) -> None:
        """As long as `going` is set, and until all that was begun is over."""
        while going.is_set():
            both = [self._next(), self._next()]
            for run in both:  # one after the other: what was taken first is answered first
                await self._begin(run)
            await asyncio.gather(*map(self._follow, both))

    def _next(self) -> _Run:
        number = len(self.runs)
        how = self._chance.choice(
            (
                "[[chunks 10]][[pace 0.03]]",
                "[[chunks 4]][[pace 0.01]]",
                "[[delay 0.1]]",
                "[[tool now {}]]",
            )
        )
        run = _Run(f"{self.name}/{number} {how}")
        self.runs.append(run)
        return run

    async def _begin(self, run: _Run) -> None:
        while True:
            try:
                headers = {"Idempotency-Key": run.text}
                body = {"input": run.text, "session_id": self.name}
                answer = await self._program.ask("POST", "/v1/runs", body, headers)
            except _BROKEN:
                await asyncio.sleep(0.02)
                continue
            if answer.status == 202:
                run.id = answer.json["id"]
                return
            if answer.status != 503:
                self._tally.faults.append(f"{run.text} was not taken: {answer}")
            await asyncio.sleep(0.02)

    async def _follow(self, run: _Run) -> None:
        while not run.is_over:
            try:
                after = run.seen[-1].number if run.seen else None
                async for told in self._program.follow(run.id, after):
                    run.seen.append(told)
            except _BROKEN:
                await asyncio.sleep(0.02)
            self._tally.reconnections += not run.is_over


async def kill_while_running(home: Path, *, kills: int, seed: int, sessions: int = 4) -> RunTally:
    tally = RunTally(seed)
    chance = random.Random(seed)
    with ModelProcess() as model, GatewayProcess(home) as gateway:
        port = free_port()
        profile = write_config(home, model_url=model.base_url, gateway={"port": port})
        gateway.start()
        await gateway.until_ready()
        async with Program(f"http://127.0.0.1:{port}", local_key(profile)) as program:
            going = asyncio.Event()
            going.set()
            talks = [
                _Session(f"s{number}", program, random.Random(f"{seed}-{number}"), tally)
                for number in range(sessions)
            ]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(talk.talk(going)) for talk in talks]
                for _ in range(kills):
                    await asyncio.sleep(chance.uniform(0, 0.7))
                    gateway.kill()
                    tally.kills += 1
                    gateway.start()
                    if chance.random() < 0.8:  # else it is killed while it starts
                        await gateway.until_ready()
                going.clear()
                await gateway.until_ready()
                _, left = await asyncio.wait(tasks, timeout=_SETTLED_WITHIN)
                for task in left:
                    task.cancel()
            for talk in talks:
                await _judge(talk, program, tally)
        if await gateway.stop() != 0:
            tally.faults.append("the gateway did not stop well at the end")
    tally.faults += _judge_database(profile.database_file, talks)
    return tally


async def _judge(talk: _Session, program: Program, tally: RunTally) -> None:
    for run in talk.runs:
        tally.runs += 1
        if not run.is_over:
            tally.lost.append(f"{run.text} {run.id}")
            continue
        log = await program.log(run.id)
        if log != run.seen or [told.number for told in log] != list(range(1, len(log) + 1)):
            tally.changed.append(f"{run.text}: {run.seen} became {log}")
        names = Counter(told.name for told in log)
        if sum(names[end] for end in ENDS) != 1:
            tally.doubled.append(f"{run.text}: {names}")
        tally.resumed += names["run.resumed"] > 0
        shown = await program.run(run.id)
        output = shown["output"] or ""
        good = output.startswith("tool said: ") if "[[tool" in run.text else None
        if good is None:
            good = output == f"echo: {run.text}"
        # A kill between a turn's end and the last line of its log leaves the end without it.
        told = output.startswith(last_text(log))
        if shown["status"] != "completed" or not good or not told:
            tally.faults.append(f"{run.text} ended as {shown} after {log}")


def _judge_database(file: Path, talks: Sequence[_Session]) -> list[str]:
    """What the rows say when all is over; nothing when all is well."""
    with closing(sqlite3.connect(file)) as db:
        faults = [
            f"{count} × {table} is {state}"
            for table, good in (
                ("inbox", "done"),
                ("turn", "done"),
                ("lane", "idle"),
                ("request", "done"),
            )
            for state, count in db.execute(f"SELECT state, count(*) FROM {table} GROUP BY state")
            if state != good
        ]
        [(kept,)] = db.execute("SELECT count(*) FROM request")
        if kept != sum(len(talk.runs) for talk in talks):
            faults.append(f"{kept} runs are kept")
        for talk in talks:
            entries = db.execute(
                "SELECT e.body FROM entry e JOIN lane l ON l.session = e.session"
                " WHERE l.key LIKE ? ORDER BY e.id",
                (f"%{talk.name}",),
            )
            bodies = [json.loads(body) for (body,) in entries]
            words = [body["text"] for body in bodies if body["role"] == "user"]
            if words != [run.text for run in talk.runs]:
                faults.append(f"the transcript of {talk.name} is not what was said: {words}")
            finals = [b for b in bodies if b["role"] == "assistant" and not b.get("tool_calls")]
            if [body["text"] for body in finals] != [
                run.seen[-1].data.get("output") for run in talk.runs if run.seen
            ]:
                faults.append(f"the transcript of {talk.name} is not what was answered")
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            faults.append("the database file is damaged")
    return faults
