"""Gateways come, go and are killed while a chat talks: every message is answered once, in order."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from parley.cli._talk import Talk
from parley.config import load_settings
from parley.gateway.home import holder_of
from parley.profiles import Profile, profile_scope
from parley.surfaces.terminal.wire import Accepted, Deliver
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config
from tests.waiting import until

_ROUNDS = 6

pytestmark = pytest.mark.usefixtures("kept_log")


class _Talker:
    """Says something now and then, and notes what comes."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.said: dict[str, str] = {}
        self.accepted: set[str] = set()
        self.answers: Counter[str] = Counter()
        self.shown: list[str] = []

    async def listen(self) -> None:
        async for frame in self._talk.frames():
            if isinstance(frame, Accepted):
                self.accepted.add(frame.id)
            elif isinstance(frame, Deliver):
                self.answers.update(frame.answers)
                self.shown.append(frame.text)
                await self._talk.shown(frame)

    async def speak(self, chance: random.Random) -> None:
        while True:
            text = f"word {len(self.said)}"
            self.said[await self._talk.say(text)] = text
            await asyncio.sleep(chance.uniform(0.01, 0.15))


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_or_doubled(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with ModelProcess(delay=0.02) as model:
        profile = write_config(
            tmp_path / "home", model_url=model.base_url, gateway={"busy": "queue"}
        )
        with profile_scope(profile), GatewayProcess(profile.home) as gateway:
            async with Talk(profile, load_settings(profile, {}), chat="main") as talk:
                talker = _Talker(talk)
                listening = asyncio.create_task(talker.listen())
                speaking = asyncio.create_task(talker.speak(chance))
                for number in range(_ROUNDS):
                    gateway.start()
                    await until(lambda: _served_by(profile, "gateway"), seconds=60)
                    await asyncio.sleep(chance.uniform(0.0, 0.5))
                    if number % 2:
                        gateway.kill()
                    else:
                        await gateway.stop()
                    if chance.random() < 0.5:
                        await until(lambda: _served_by(profile, "chat"), seconds=60)
                speaking.cancel()
                await until(lambda: set(talker.said) <= set(talker.answers), seconds=60)
                assert set(talker.said) == talker.accepted
                assert set(talker.answers.values()) == {1}
                assert talker.shown == [f"echo: {text}" for text in talker.said.values()]
                listening.cancel()
                await asyncio.wait([listening, speaking])
    with closing(sqlite3.connect(profile.database_file)) as db:
        [(undelivered,)] = db.execute("SELECT count(*) FROM outbox WHERE state != 'sent'")
    assert undelivered == 0


def _served_by(profile: Profile, kind: str) -> bool:
    holder = holder_of(profile)
    return holder is not None and holder.kind == kind
