"""A program that begins runs and follows them, and a house with an API for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp

from parley.config.api_keys import KeyFile
from parley.surfaces.api.surface import ApiSurface
from tests.gateway.house import House
from tests.servers.api_server import an_api, local_key

__all__ = ["Answer", "ApiHouse", "Program", "Told", "last_text"]

ENDS = frozenset({"run.completed", "run.failed", "run.cancelled"})
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Told:
    """One event of a run, as it came."""

    number: int
    name: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    json: Any

    @property
    def code(self) -> Any:
        return self.json["error"]["code"]


def last_text(log: list[Told]) -> str:
    """What stands there once everything withdrawn or finished before is left out."""
    text = ""
    for told in log:
        if told.name == "text.delta":
            text += told.data["delta"]
        elif told.name in {"step", "text.reset"}:
            text = ""
    return text


class Program:
    """Speaks to one server with one key."""

    def __init__(self, where: str, key: str) -> None:
        self._where = where
        self._key = key
        self._client: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._client = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._key}"},
            connector=aiohttp.TCPConnector(limit=0),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.client.close()

    @property
    def client(self) -> aiohttp.ClientSession:
        assert self._client is not None
        return self._client

    def url(self, path: str) -> str:
        return self._where + path

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        async with (
            asyncio.timeout(_PATIENCE),
            self.client.request(method, self.url(path), json=body, headers=headers) as answer,
        ):
            return Answer(answer.status, dict(answer.headers), await answer.json())

    # ── runs ──

    async def start(
        self, text: str, headers: Mapping[str, str] | None = None, **more: object
    ) -> dict[str, Any]:
        answer = await self.ask("POST", "/v1/runs", {"input": text, **more}, headers)
        assert answer.status == 202, answer
        made: dict[str, Any] = answer.json
        return made

    async def run(self, id: str) -> dict[str, Any]:
        answer = await self.ask("GET", f"/v1/runs/{id}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json
        return found

    async def stop(self, id: str) -> dict[str, Any]:
        answer = await self.ask("POST", f"/v1/runs/{id}/stop")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json
        return found

    async def decide(self, id: str, approval: str, decision: str) -> Answer:
        said = {"approval_id": approval, "decision": decision}
        return await self.ask("POST", f"/v1/runs/{id}/approval", said)

    async def until(self, id: str, *statuses: str) -> dict[str, Any]:
        async with asyncio.timeout(_PATIENCE):
            while (found := await self.run(id))["status"] not in statuses:
                await asyncio.sleep(0.01)
        return found

    async def over(self, id: str) -> dict[str, Any]:
        return await self.until(id, "completed", "failed", "cancelled")

    async def follow(
        self, id: str, after: int | None = None, *, comment: Callable[[str], None] | None = None
    ) -> AsyncGenerator[Told, None]:
        """The events of a run until its stream ends; the connection goes with the iterator."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        address = self.url(f"/v1/runs/{id}/events")
        async with self.client.get(address, headers=headers) as stream:
            assert stream.status == 200, await stream.text()
            assert stream.headers["Content-Type"].startswith("text/event-stream")
            fields: dict[str, str] = {}
            async for line in stream.content:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                elif value and comment is not None:
                    comment(value)
                elif fields:
                    data = json.loads(fields["data"])
                    assert (data["type"], data["run_id"]) == (fields["event"], id)
                    yield Told(int(fields["id"]), fields["event"], data)
                    fields = {}

    async def log(self, id: str, after: int | None = None) -> list[Told]:
        """All of it, up to the end of the stream."""
        async with asyncio.timeout(_PATIENCE):
            return [told async for told in self.follow(id, after)]

    async def first(self, id: str, name: str) -> Told:
        """Wait for the first event of this name."""
        async with asyncio.timeout(_PATIENCE):
            async for told in self.follow(id):
                if told.name == name:
                    return told
        raise AssertionError(f"there is no {name} in the log")


class ApiHouse:
    """A house whose gateways have an API, at one address through all of them."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._api: ApiSurface | None = None
        self._port = 0
        self._sections: Mapping[str, Mapping[str, Any]] = {}

    @property
    def api(self) -> ApiSurface:
        assert self._api is not None
        return self._api

    @property
    def connections(self) -> int:
        """How many the server knows of."""
        site = self.api._site
        assert site is not None
        return site.connections

    async def open(self, **sections: Mapping[str, Any]) -> None:
        self._sections = sections
        self._api = an_api(self.house.profile, port=self._port)
        self.house.more_surfaces = [self._api]
        await self.house.open(**sections)
        self._port = int(self._api.where.rpartition(":")[2])

    async def restart(self) -> None:
        await self.house.close()
        await self.open(**self._sections)

    async def crash(self) -> None:
        """Nothing that ran has a chance to write another word."""
        for task in asyncio.all_tasks():
            if task.get_name() == "api-work":
                task.cancel()
        await self.house.crash()
        await self.api.stop()

    async def begin_again(self) -> None:
        """After a crash."""
        await self.open(**self._sections)

    def program(self) -> Program:
        """One with the key of this machine, which works while there is no other."""
        return Program(self.api.where, local_key(self.house.profile))

    def program_with(self, name: str, *scopes: str) -> Program:
        """One with a key of its own."""
        _, token = KeyFile(self.house.profile).create(name, scopes or ("chat", "runs"))
        return Program(self.api.where, token)
