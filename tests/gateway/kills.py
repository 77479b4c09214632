"""Kill a gateway again and again while people talk to it, and count what became of their words."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from parley.gateway.home import holder_of
from tests.gateway.conversation import PHASES, Conversation, Moments
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config

__all__ = ["KillTally", "kill_while_talking"]

_AIMS = (*PHASES, "any", "start")
_AIMED_WITHIN = 1.5
_SETTLED_WITHIN = 60.0
_STARTS_WITHIN = 0.4  # once it holds its home


@dataclass(slots=True)
class KillTally:
    """What came of it. `faults` says in words what no number here counts."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    accepted: int = 0
    replies: int = 0
    repeats: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    first_answers: list[float] = field(default_factory=list)
    """Seconds from each restart to the first reply that arrived."""


async def kill_while_talking(
    home: Path, *, busy: Literal["queue", "steer"], kills: int, seed: int, people: int = 5
) -> KillTally:
    """Kill the gateway `kills` times at moments of every kind, then let everything settle."""
    tally = KillTally(seed)
    with ModelProcess() as model:
        profile = write_config(home, model_url=model.base_url, gateway={"busy": busy})
        with GatewayProcess(home) as gateway:
            moments = Moments()
            conversations = [
                Conversation(
                    f"c{number}", socket=gateway.socket, seed=f"{seed}-{number}", moments=moments
                )
                for number in range(people)
            ]
            async with asyncio.TaskGroup() as group:
                talking = [group.create_task(person.run()) for person in conversations]
                killer = _Killer(gateway, moments, tally)
                await killer.kill(kills)
                moments.talking = False
                await _settle(gateway, conversations, tally)
                for task in talking:
                    task.cancel()
            if await gateway.stop() != 0:
                tally.faults.append("the gateway did not stop well at the end")
    for person in conversations:
        _judge(person, tally)
    tally.faults += _judge_database(profile.database_file, conversations)
    return tally


class _Killer:
    def __init__(self, gateway: GatewayProcess, moments: Moments, tally: KillTally) -> None:
        self._gateway = gateway
        self._moments = moments
        self._tally = tally
        self._random = random.Random(tally.seed)

    async def kill(self, times: int) -> None:
        """Leaves a gateway running that is as fresh as any."""
        for aim in self._aims(times):
            started = time.perf_counter()
            self._gateway.start()
            first = asyncio.create_task(self._first_answer(started))
            self._tally.kills[await self._wait_for(aim)] += 1
            self._gateway.kill()
            first.cancel()
            await asyncio.wait([first])
        self._gateway.start()
        await self._gateway.until_ready()

    def _aims(self, times: int) -> list[str]:
        """Every kind as often as any other, in any order; first while the database is made."""
        aims = [_AIMS[number % len(_AIMS)] for number in range(times)]
        self._random.shuffle(aims)
        return ["start", *aims][:times]

    async def _wait_for(self, aim: str) -> str:
        chance = self._random
        if aim == "start":
            await self._until_begun()
            await asyncio.sleep(chance.uniform(0, _STARTS_WITHIN))
            return aim
        await self._gateway.until_ready()
        if aim == "any" or chance.random() < 0.6:
            await asyncio.sleep(chance.uniform(0, 0.3))
        if aim == "any" or not await self._moments.next(aim, seconds=_AIMED_WITHIN):
            return "any"
        # A quick turn takes a few milliseconds: this falls before, into and after its steps.
        await asyncio.sleep(chance.choice((0, chance.uniform(0, 0.004), chance.uniform(0, 0.02))))
        return aim

    async def _until_begun(self) -> None:
        """Past the imports: it holds its home and goes for the database and the surfaces."""
        async with asyncio.timeout(_SETTLED_WITHIN):
            while (holder := holder_of(self._gateway.profile)) is None or (
                holder.pid != self._gateway.pid
            ):
                await asyncio.sleep(0.003)

    async def _first_answer(self, started: float) -> None:
        if await self._moments.next("delivery", seconds=_SETTLED_WITHIN):
            self._tally.first_answers.append(time.perf_counter() - started)


async def _settle(
    gateway: GatewayProcess, conversations: Sequence[Conversation], tally: KillTally
) -> None:
    """Wait until everything is answered and every answer is known to have arrived."""
    try:
        async with asyncio.timeout(_SETTLED_WITHIN):
            while not all(person.settled for person in conversations):
                await asyncio.sleep(0.02)
            while not _is_quiet(await gateway.status()):
                await asyncio.sleep(0.02)
    except TimeoutError:
        tally.faults.append(f"it never came to rest: {await gateway.status()}")


def _is_quiet(status: dict[str, object] | None) -> bool:
    under_way = ("running", "queued", "undelivered")
    return status is not None and all(status[name] == 0 for name in under_way)


def _judge(person: Conversation, tally: KillTally) -> None:
    tally.messages += len(person.said)
    tally.accepted += len(person.accepted)
    tally.replies += len(person.replies)
    tally.repeats += person.repeats
    tally.faults += person.faults
    times = Counter(person.answered)
    tally.lost += [number for number in person.said if times[number] == 0]
    tally.doubled += [number for number, count in times.items() if count > 1]
    order = [list(person.said).index(number) for number in person.answered]
    tally.reordered += [
        f"{person.chat}/{later} after {person.chat}/{earlier}"
        for earlier, later in itertools.pairwise(order)
        if later < earlier
    ]
    for reply in person.replies.values():
        asked = [person.said[number] for number in reply.answers]
        if reply.kind != "reply":
            tally.faults.append(f"{reply.key} is no answer: {reply.text}")
        elif any("[[tool" in text for text in asked):
            if not reply.text.startswith("tool said: "):
                tally.faults.append(f"{reply.key} forgot its tools: {reply.text}")
        elif not asked or reply.text != "echo: " + " | ".join(asked):
            tally.faults.append(f"{reply.key} answers {asked} with: {reply.text}")


def _judge_database(file: Path, conversations: Sequence[Conversation]) -> list[str]:
    """What the rows say when all is over; nothing when all is well."""
    with closing(sqlite3.connect(file)) as db:

        def found(query: str) -> list[tuple[str, int]]:
            return db.execute(query).fetchall()

        faults = [
            f"{count} × {table} is {state}"
            for table, good in (
                ("inbox", "done"),
                ("outbox", "sent"),
                ("turn", "done"),
                ("lane", "idle"),
            )
            for state, count in found(f"SELECT state, count(*) FROM {table} GROUP BY state")
            if state != good
        ]
        faults += [
            f"turn {turn} has {count} replies"
            for turn, count in found(
                "SELECT t.id, count(o.id) FROM turn t LEFT JOIN outbox o ON o.turn = t.id"
                " GROUP BY t.id HAVING count(o.id) <> 1"
            )
        ]
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            faults.append("the database file is damaged")
        for person in conversations:
            entries = db.execute(
                "SELECT e.body FROM entry e JOIN lane l ON l.session = e.session"
                " WHERE l.key LIKE ? ORDER BY e.id",
                (f"%:{person.chat}",),
            )
            bodies = [json.loads(body) for (body,) in entries]
            words = [body["text"] for body in bodies if body["role"] == "user"]
            if words != list(person.said.values()):
                faults.append(f"the transcript of {person.chat} is not what was said: {words}")
            finals = [b for b in bodies if b["role"] == "assistant" and not b.get("tool_calls")]
            if [body["text"] for body in finals] != [r.text for r in person.replies.values()]:
                faults.append(f"the transcript of {person.chat} is not what was answered")
    return faults
