"""Kill a gateway again and again while it tends what it remembers, and count what is left of it."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from parley.gateway.home import holder_of
from parley.storage.sqlite.store import SqliteStore
from tests.gateway.memory_house import PEOPLE, MemoryHouse, memory_house
from tests.gateway.memory_judge import judge
from tests.servers.dying_gateway import choose, died_at

__all__ = ["MemoryTally", "kill_while_remembering"]

_REACH = {"look": 12, "write": 40, "fold": 30, "view": 14, "edit": 30}
"""How many steps behind each moment it dies at most."""
_AIMS = ("write", "asked", "view", "told", "fold", "edit", "look", "write", "told", "any", "start")
_AIMED_WITHIN = 4.0
_END = "<!-- end"


@dataclass(slots=True)
class MemoryTally:
    """What came of it. `kills` by what was aimed at, `steps` those before which it died itself.

    `found` is what the store and the files showed after each kill.
    """

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    facts: int = 0
    edits: int = 0
    commits: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    faults: list[str] = field(default_factory=list)


async def kill_while_remembering(home: Path, *, kills: int, seed: int) -> MemoryTally:
    """Kill it so often, at moments of every kind, let everything come to rest, and look."""
    tally = MemoryTally(seed)
    chance = random.Random(seed)
    async with memory_house(home) as house:
        over = asyncio.Event()
        hand = Hand(house, chance)
        async with asyncio.TaskGroup() as group:
            for person in PEOPLE:
                group.create_task(house.talk(person, random.Random(f"{seed}{person.name}"), over))
            killer = _Killer(house, hand, chance, tally)
            for number in range(kills):
                await killer.kill(_AIMS[number % len(_AIMS)])
            choose(home, None)
            house.model.thinks = 0.0
            await house.start()
            over.set()
        try:
            await house.until_quiet()
        except TimeoutError:
            tally.faults.append(f"it never came to rest: {await house.gateway.status()}")
        if await house.gateway.stop() != 0:
            tally.faults.append("the gateway did not stop well at the end")
        tally.steps.update(died_at(home))
        tally.messages, tally.edits = len(house.planted), hand.edits
        tally.asked = house.model.events.count(("housekeeping", "asked"))
        kinds = house.read("SELECT kind, count(*) FROM memory_commit GROUP BY kind")
        tally.commits.update(dict(kinds))
        store = SqliteStore.open(house.profile.database_file)
        try:
            tally.facts, faults = await judge(house, store, hand.errands)
        finally:
            await store.close()
        tally.faults += faults
    return tally


class _Killer:
    def __init__(
        self, house: MemoryHouse, hand: Hand, chance: random.Random, tally: MemoryTally
    ) -> None:
        self._house = house
        self._gateway = house.gateway
        self._hand = hand
        self._chance = chance
        self._tally = tally

    async def kill(self, aim: str) -> None:
        """Start one, and kill it where it was aimed at, or anywhere when that does not come."""
        home, chance = self._house.profile.home, self._chance
        if aim == "edit" or chance.random() < 0.2:
            self._hand.edit()
        choose(home, aim if aim in _REACH else None, chance.randrange(_REACH.get(aim, 1)))
        model = self._house.model
        model.thinks = chance.choice((0.0, 0.02, 0.1))
        commits, told = self._commits(), model.events.count(("housekeeping", "told"))
        self._gateway.start()
        self._tally.kills[await self._reached(aim)] += 1
        self._gateway.kill()
        self._look(commits, model.events.count(("housekeeping", "told")) - told)

    async def _reached(self, aim: str) -> str:
        chance, model = self._chance, self._house.model
        if aim == "start":
            while (holder := holder_of(self._gateway.profile)) is None or (
                holder.pid != self._gateway.pid
            ):
                await asyncio.sleep(0.003)
            await asyncio.sleep(chance.uniform(0, 0.4))
            return aim
        if aim in _REACH:
            deaths = len(died_at(self._house.profile.home))
            if not await self._gateway.ends(seconds=_AIMED_WITHIN):
                return "any"
            if len(died_at(self._house.profile.home)) == deaths:
                self._tally.faults.append("it ended otherwise than by being killed")
            return aim
        await self._gateway.until_ready()
        if aim == "any":
            await asyncio.sleep(chance.uniform(0, 0.8))
            return aim
        if aim == "asked":
            model.thinks = 0.1
        if not await model.moments.next(f"housekeeping {aim}", seconds=_AIMED_WITHIN):
            return "any"
        # From the answer to the stored commit and the written view it is some milliseconds.
        await asyncio.sleep(chance.choice((0, chance.uniform(0, 0.01), chance.uniform(0, 0.05))))
        return aim

    # ── what it left ──

    def _commits(self) -> int:
        if not self._house.profile.database_file.exists():
            return 0
        if not self._house.read("SELECT 1 FROM sqlite_schema WHERE name = 'memory_commit'"):
            return 0
        [(count,)] = self._house.read("SELECT count(*) FROM memory_commit")
        return int(count)

    def _look(self, before: int, told: int) -> None:
        found, made = self._tally.found, self._commits() - before
        if told > made:
            found["the model had answered, and nothing of that was stored"] += 1
        if not made and not before:
            return
        read = self._house.read
        if read("SELECT 1 FROM memory_place WHERE view_version <> version"):
            found["facts were stored, and a view was behind"] += 1
        if read("SELECT 1 FROM memory_place WHERE instr(view, char(12))"):
            found["a view was being replaced"] += 1
        if read("SELECT 1 FROM session WHERE tend_at IS NOT NULL"):
            found["a conversation was in line"] += 1
        if self._house.pending_edits():
            found["a hand's edit was not taken in, or its view not written"] += 1


class Hand:
    """Somebody who edits the views while no gateway runs: adds lines, changes and removes them.

    What they wrote is changed only when it was taken in before: it bears a number then.
    """

    def __init__(self, house: MemoryHouse, chance: random.Random) -> None:
        self._house = house
        self._chance = chance
        self.edits = 0
        self.errands: dict[str, Path] = {}
        """What is to be remembered of it all, and in which file."""

    def edit(self) -> None:
        files = sorted(self._house.folder.rglob("*.md"))
        if not files:
            return
        file = self._chance.choice(files)
        text = file.read_text()
        if file not in self._house.pending_edits():
            text = self._changed(text)
        errand = f"Errand number {self.edits} is wanted."
        file.write_text(text.replace(_END, f"- {errand}\n\n{_END}"))
        self.errands[errand] = file
        self.edits += 1

    def _changed(self, text: str) -> str:
        """One that is wanted is done; one that is done goes."""
        found = re.findall(r"^(- \[\d+\] (Errand .*?) · .*\n)", text, re.MULTILINE)
        if not found:
            return text
        line, errand = self._chance.choice(found)
        file = self.errands.pop(errand)
        if "wanted" not in line:
            return text.replace(line, "")
        self.errands[errand.replace("wanted", "done")] = file
        return text.replace(line, line.replace("wanted", "done"))
