"""What only a turn waited for ends with it, also when the gateway ended first."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import aiohttp
import pytest

from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.hands_kills import KilledHouse, killed_house
from tests.gateway.workshop import Scenes, delegate, run, waiting
from tests.servers.api_server import local_key
from tests.servers.scripted_model import Reply
from tests.waiting import until

pytestmark = [needs_bubblewrap, pytest.mark.timeout(120)]


async def _ask(house: KilledHouse, said: str) -> None:
    """As a program that waits at its connection, and asks no second time."""
    headers = {"Authorization": f"Bearer {local_key(house.profile)}"}
    asked = {"model": "default", "messages": [{"role": "user", "content": said}]}
    with contextlib.suppress(aiohttp.ClientError):
        async with aiohttp.ClientSession(headers=headers) as http:
            await http.post(f"{house.address}/v1/chat/completions", json=asked)


@pytest.mark.parametrize("said", ["fetch", "try"], ids=["a task", "a command"])
async def test_nothing_is_done_for_a_program_that_lost_its_answer(
    tmp_path: Path, said: str
) -> None:
    script = Scenes()
    command = run("echo line >> ran; " + waiting("never"))
    script.when("fetch", delegate("dig"), Reply(text="fetched"))
    script.when("try", command, Reply(text="tried"))
    script.when("dig", command, Reply(text="gold"))
    async with killed_house(tmp_path / "home", script) as house:
        await house.start()
        asking = asyncio.create_task(_ask(house, said))
        await until(lambda: house.lines("ran"))
        asked = house.model.total
        await house.kill_and_start()
        await asking
        await until(lambda: not house.running_processes())
        await house.until_quiet()
        assert house.model.total == asked
