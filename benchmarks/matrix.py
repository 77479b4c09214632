"""What Parley adds to a homeserver's own round trip: 200 rooms at once, and one after another.

`python -m benchmarks.matrix [ROOMS]`. The same messages are answered by the least that can answer
on Matrix, a loop that syncs and sends; what Parley takes longer than that is Parley's. All of it
runs on one machine: Synapse, the gateway, its model, and the person who writes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config
from tests.servers.synapse import Account, Synapse, running_synapse

from benchmarks.report import Row, median, percentile, print_table
from parley.surfaces.matrix import account as accounts

__all__ = ["run"]

ROOMS = 200
ONE_BY_ONE = 30
_WITHIN = 300.0


class Person:
    """Writes into rooms, and sees when the answers come."""

    def __init__(self, server: Synapse, account: Account, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._account = account
        self._session = session
        self._seen: dict[tuple[str, str], asyncio.Future[float]] = {}
        self._number = 0

    async def call(self, method: str, path: str, body: object = None, **query: str) -> Any:
        url = f"{self._server.url}/_matrix/client/v3{path}"
        bearer = {"Authorization": f"Bearer {self._account.token}"}
        async with self._session.request(
            method, url, json=body, headers=bearer, params=query
        ) as answer:
            return await answer.json()

    async def follow(self) -> None:
        since = (await self.call("GET", "/sync", timeout="0"))["next_batch"]
        while True:
            told = await self.call("GET", "/sync", timeout="10000", since=since)
            since, now = told["next_batch"], time.perf_counter()
            for room_id, room in told.get("rooms", {}).get("join", {}).items():
                for event in room.get("timeline", {}).get("events", ()):
                    if event.get("sender") != self._account.user_id:
                        self._look(room_id, event, now)

    def _look(self, room_id: str, event: dict[str, Any], now: float) -> None:
        content = event.get("content", {})
        text = str(content.get("m.new_content", content).get("body", ""))
        for (room, word), waiting in list(self._seen.items()):
            if room == room_id and word in text and not waiting.done():
                waiting.set_result(now)

    async def ask(self, room_id: str) -> float:
        """How long it takes from a message to its answer."""
        self._number += 1
        word = f"word{self._number}word"
        answered: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._seen[room_id, word] = answered
        began = time.perf_counter()
        content = {"msgtype": "m.text", "body": f"Say {word}"}
        path = f"/rooms/{room_id}/send/m.room.message/{self._number}-{time.time_ns()}"
        await self.call("PUT", path, content)
        try:
            return await asyncio.wait_for(answered, _WITHIN) - began
        finally:
            del self._seen[room_id, word]


async def _bare_bot(server: Synapse, account: Account, session: aiohttp.ClientSession) -> None:
    """Answers everything at once, and knows nothing else."""
    bot = Person(server, account, session)
    since = (await bot.call("GET", "/sync", timeout="0"))["next_batch"]
    number = 0
    sends: set[asyncio.Task[Any]] = set()
    while True:
        told = await bot.call("GET", "/sync", timeout="10000", since=since)
        since = told["next_batch"]
        for room_id, room in told.get("rooms", {}).get("join", {}).items():
            for event in room.get("timeline", {}).get("events", ()):
                if event.get("type") == "m.room.message" and event["sender"] != account.user_id:
                    number += 1
                    content = {"msgtype": "m.text", "body": event["content"]["body"]}
                    path = f"/rooms/{room_id}/send/m.room.message/{number}-{time.time_ns()}"
                    task = asyncio.create_task(bot.call("PUT", path, content))
                    sends.add(task)
                    task.add_done_callback(sends.discard)


def _rooms(server: Synapse, person: Account, bot: Account, count: int) -> list[str]:
    rooms = []
    for number in range(count):
        wanted = {"preset": "private_chat", "name": f"Room {number}", "invite": [bot.user_id]}
        made = server.call("POST", "/_matrix/client/v3/createRoom", wanted, token=person.token)
        path = f"/_matrix/client/v3/rooms/{made['room_id']}/join"
        server.call("POST", path, {}, token=bot.token)
        rooms.append(str(made["room_id"]))
    return rooms


@asynccontextmanager
async def _following(person: Person) -> AsyncIterator[None]:
    task = asyncio.create_task(person.follow())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _measure(
    server: Synapse, account: Account, rooms: Sequence[str]
) -> tuple[list[float], list[float]]:
    """One after another in one room, then in all at once; the first ones are not counted."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        person = Person(server, account, session)
        async with _following(person):
            for _ in range(3):
                await person.ask(rooms[0])
            alone = [await person.ask(rooms[0]) for _ in range(ONE_BY_ONE)]
            at_once: list[float] = []
            for _ in range(2):
                at_once = await asyncio.gather(*(person.ask(room) for room in rooms))
    return alone, at_once


async def _bare(
    server: Synapse, account: Account, bot: Account, rooms: Sequence[str]
) -> tuple[list[float], list[float]]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        task = asyncio.create_task(_bare_bot(server, bot, session))
        try:
            return await _measure(server, account, rooms)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _parley(
    server: Synapse, account: Account, bot: Account, rooms: Sequence[str], home: Path
) -> tuple[list[float], list[float]]:
    with ModelProcess() as model, GatewayProcess(home) as gateway:
        profile = write_config(home, model_url=model.base_url)
        config = json.loads(profile.config_file.read_text())
        config["surfaces"] = {"matrix": {"enabled": True, "allow": [account.user_id]}}
        config["plan"] = {"tokens": None}
        profile.config_file.write_text(json.dumps(config))
        kept = accounts.Account(server.url, bot.user_id, bot.device_id, bot.token, "pickle")
        accounts.write_account(profile, kept)
        gateway.start()
        await gateway.until_ready()
        return await _measure(server, account, rooms)


def run(*, count: int = ROOMS) -> list[Row]:
    with running_synapse() as server, tempfile.TemporaryDirectory(prefix="parley-") as folder:
        person, plain, bot = (server.register() for _ in range(3))
        bare_alone, bare_all = asyncio.run(
            _bare(server, person, plain, _rooms(server, person, plain, count))
        )
        ours = _rooms(server, person, bot, count)
        alone, everywhere = asyncio.run(_parley(server, person, bot, ours, Path(folder)))
    return [
        Row("one after another: bare bot, p50 / p99", _spread(bare_alone)),
        Row("one after another: Parley, p50 / p99", _spread(alone)),
        Row(
            "one after another: added, p50", f"{1000 * (median(alone) - median(bare_alone)):.0f} ms"
        ),
        Row(f"{count} rooms at once: bare bot, p50 / p99", _spread(bare_all)),
        Row(f"{count} rooms at once: Parley, p50 / p99", _spread(everywhere)),
        Row(
            f"{count} rooms at once: added for each message",
            f"{1000 * (max(everywhere) - max(bare_all)) / count:.1f} ms",
        ),
    ]


def _spread(times: Sequence[float]) -> str:
    return f"{1000 * median(times):.0f} / {1000 * percentile(times, 99):.0f} ms"


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    print_table("matrix", run(count=numbers[0] if numbers else ROOMS))
