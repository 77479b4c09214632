"""What happens at the same moment: clients that leave and come back, branches, revoked keys."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import time
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict

from parley.config.api_keys import KeyFile
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel, Usage
from tests.servers.stage import Stage
from tests.surfaces.api.asking import user
from tests.surfaces.api.served import Served, a_key, served_api
from tests.waiting import until

CHAT, RESPONSES, RUNS = "/v1/chat/completions", "/v1/responses", "/v1/runs"


async def leave_after(served: Served, path: str, body: object, key: str, seconds: float) -> None:
    """Ask, and be gone before the answer."""
    try:
        async with asyncio.timeout(seconds):
            await served.post(path, body, headers={"Idempotency-Key": key})
    except TimeoutError:
        return


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_whoever_leaves_at_any_moment_and_asks_again_has_one_turn(
    served: Served, model: ScriptedModel, path: str
) -> None:
    chance = random.Random(4)

    async def one(number: int) -> None:
        body = {"messages": [user(f"q{number}")]} if path == CHAT else {"input": f"q{number}"}
        for _ in range(2):
            await leave_after(served, path, body, f"k{number}", chance.uniform(0.001, 0.03))
        got = await served.post(path, body, headers={"Idempotency-Key": f"k{number}"})
        assert got.status == 200, got.body

    for start in range(0, 40, 8):
        await asyncio.gather(*(one(number) for number in range(start, start + 8)))
    asked = [sent.json["messages"][-1]["content"] for sent in model.requests]
    assert sorted(asked) == sorted(f"q{number}" for number in range(40))
    store = served.house.store
    assert store is not None
    assert await store.open_requests() == []


async def begun(served: Served) -> str:
    got = await served.post(RESPONSES, {"input": "ROOT"})
    return str(json.loads(got.body)["id"])


def told_to(model: ScriptedModel, since: int) -> list[list[str]]:
    """The words of people in each request, without what pads them."""
    return [
        [each["content"].split()[0] for each in sent.json["messages"] if each["role"] == "user"]
        for sent in list(model.requests)[since:]
    ]


@pytest.mark.parametrize("path", [RESPONSES, RUNS])
async def test_branches_that_begin_at_once_know_nothing_of_each_other(
    served: Served, model: ScriptedModel, path: str
) -> None:
    root, since = await begun(served), model.total
    bodies = [
        {"input": f"FORK{number} {'x' * 40_000}", "previous_response_id": root}
        for number in range(4)
    ]
    await asyncio.gather(*(served.post(path, body) for body in bodies))
    await until(lambda: model.total == since + 4)
    assert sorted(told_to(model, since)) == [["ROOT", f"FORK{number}"] for number in range(4)]


async def test_an_answer_that_cannot_be_counted_is_given_and_asked_for_once(
    served: Served, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(text="much", usage=Usage(output=10**19)))
    got = await served.post(CHAT, {"messages": [user("hi")]})
    assert got.status == 200
    assert json.loads(got.body)["choices"][0]["message"]["content"] == "much"
    assert model.total == 1


async def test_a_revoked_key_reads_no_further(served: Served, stage: Stage) -> None:
    token = a_key(served.house.profile, "one")
    stage.then(Reply(text="a" * 60, chunks=60, chunk_delay=0.2))
    run = json.loads((await served.post(RUNS, {"input": "hi"}, key=token)).body)
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{served.api.where}/v1/runs/{run['id']}/events"
    async with served.http.get(url, headers=headers) as answer:
        assert await answer.content.readline() == b"event: run.started\n"
        KeyFile(served.house.profile).revoke("one")
        with pytest.raises(aiohttp.ClientError):
            async with asyncio.timeout(6):
                while await answer.content.readline():
                    continue
    store: Any = served.house.store
    assert (await store.request(run["id"])).ended_at is None  # the run itself goes on


async def test_nothing_of_what_is_not_to_be_stored_is_kept_but_the_answer_for_a_repeat(
    served: Served, house: House
) -> None:
    body = {"input": "NOSTORE", "store": False}
    first = await served.post(RESPONSES, body, headers={"Idempotency-Key": "k"})
    again = await served.post(RESPONSES, body, headers={"Idempotency-Key": "k"})
    assert first.status == 200
    assert first.body == again.body
    assert [each for talk in await served.transcripts() for each in talk] == []
    with sqlite3.connect(house.profile.database_file) as db:
        assert db.execute("SELECT count(*) FROM entry").fetchone() == (0,)
        assert "NOSTORE" not in "".join(row[0] for row in db.execute("SELECT payload FROM inbox"))


async def test_files_that_nobody_sends_any_more_are_cleared_away(
    served: Served, house: House
) -> None:
    parts = [{"type": "file", "file": {"filename": "a.txt", "file_data": "aGVsbG8="}}]
    body = {"messages": [{"role": "user", "content": parts}]}
    assert (await served.post(CHAT, body)).status == 200
    [kept] = house.profile.attachments.iterdir()
    desk = served.api._desk
    assert desk is not None
    desk.open_records()
    await desk.prune()
    assert kept.exists()
    os.utime(kept, (0, time.time() - 31 * 86_400))
    await desk.prune()
    assert not kept.exists()


async def test_two_different_keys_for_one_request_are_refused(
    served: Served, model: ScriptedModel
) -> None:
    headers = CIMultiDict([("Idempotency-Key", "one"), ("Idempotency-Key", "two")])
    headers["Authorization"] = f"Bearer {served.key}"
    body = {"messages": [user("hi")]}
    async with served.http.post(served.api.where + CHAT, json=body, headers=headers) as answer:
        assert answer.status == 400
    assert model.total == 0


async def test_who_only_looks_whether_it_is_there_is_answered(served: Served) -> None:
    async with served.http.head(f"{served.api.where}/healthz") as answer:
        assert answer.status == 200


async def test_programs_leave_room_for_people(house: House, stage: Stage) -> None:
    stage.then(*[Reply(text="slow", delay=30)] * 30)
    async with served_api(house, gateway={"running_turns": 10}) as served:
        for number in range(20):
            assert (await served.post(RUNS, {"input": f"run {number}"})).status == 202
        await house.model.until(lambda model: model.open_streams == 9)
        stage.clear()
        assert await house.desk.ask("hello") == "echo: hello"
        assert house.model.open_streams == 9
