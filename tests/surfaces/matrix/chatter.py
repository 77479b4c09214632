"""Someone who keeps writing into their rooms while gateways are killed, and counts the answers."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.servers.gateway_process import GatewayProcess
from tests.surfaces.matrix.person import Person
from tests.waiting import until

__all__ = ["Chatter", "kill_at_random"]

_PACES = ("", "[[delay 0.2]] ", "[[chunks 12]] [[pace 0.04]] ", "[[chunks 25]] [[pace 0.04]] ")
_ENDINGS = ("stopped", "…")


@dataclass(slots=True)
class Chatter:
    """Every message has a word of its own, and every answer repeats the words it answers."""

    person: Person
    agent: str
    rooms: Sequence[str]
    chance: random.Random
    said: dict[str, str] = field(default_factory=dict)
    """The room of each word."""

    async def write(self, times: int, *, pause: float) -> None:
        for number in range(times):
            word = f"w{secrets.token_hex(5)}w"
            room = self.said[word] = self.rooms[number % len(self.rooms)]
            await self.person.send(room, f"{self.chance.choice(_PACES)}{word}")
            await asyncio.sleep(self.chance.uniform(0, 2 * pause))

    def counted(self) -> Counter[str]:
        """How many messages of the agent have each word, in its room and at its end."""
        found: Counter[str] = Counter()
        for answer in self.person.from_sender(self.agent):
            for word, room in self.said.items():
                if word in answer.text:
                    found[word if room == answer.room_id else f"{word} elsewhere"] += 1
        return found

    @property
    def is_answered(self) -> bool:
        return all(self.counted()[word] for word in self.said) and not self.unfinished()

    async def until_answered(self, *, seconds: float) -> None:
        """As far as it comes in that time: what is missing is told by `faults`."""
        try:
            await until(lambda: self.is_answered, seconds=seconds)
        except AssertionError:
            return

    def unfinished(self) -> list[str]:
        """Previews that nobody has ended."""
        texts = [each.text for each in self.person.from_sender(self.agent)]
        return [text for text in texts if text.rstrip().endswith(_ENDINGS)]

    def faults(self) -> list[str]:
        """In words: what was lost, is there twice, or was left behind."""
        found = self.counted()
        lost = [f"lost: {word}" for word in self.said if not found[word]]
        twice = [f"twice: {word}" for word, count in found.items() if count > 1]
        elsewhere = [f"{word}" for word in found if "elsewhere" in word]
        left = [f"left behind: {text}" for text in self.unfinished()]
        unread = [f"cannot be read: {event.event_id}" for event in self.person.unreadable]
        return [*lost, *twice, *elsewhere, *left, *unread]


async def kill_at_random(
    processes: Sequence[GatewayProcess],
    times: int,
    chance: random.Random,
    *,
    longest: float,
    done: Callable[[], bool] = lambda: False,
) -> int:
    """Kill one or more of them `times`, each at any moment of its life; all run at the end."""
    for number in range(times):
        if done():
            return number
        await asyncio.sleep(chance.uniform(0, longest))
        chosen = chance.sample(processes, chance.randint(1, len(processes)))
        for process in chosen:
            process.kill()
        for process in chosen:
            process.start()
        if chance.random() < 0.7:
            for process in chosen:
                await process.until_ready()
    for process in processes:
        await process.until_ready()
    return times
