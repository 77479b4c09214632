"""A program that leaves just as its answer is made finds it under its key."""

from __future__ import annotations

import asyncio

import pytest

from parley.storage.contract import TurnResult
from parley.storage.sqlite import SqliteStore
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.program import ApiHouse, Program


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_turn_that_ends_while_its_program_leaves_is_written_down(
    api_house: ApiHouse,
    program: Program,
    stage: Stage,
    model: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    seen, go = asyncio.Event(), asyncio.Event()
    look = SqliteStore.turn_result

    async def look_slowly(store: SqliteStore, dedupe: str) -> TurnResult | None:
        found = await look(store, dedupe)
        if not seen.is_set():
            seen.set()
            await go.wait()
        return found

    monkeypatch.setattr(SqliteStore, "turn_result", look_slowly)
    stage.then(Reply(text="the answer", chunks=2, chunk_delay=0.4))
    body = {"input": "hi", "messages": [{"role": "user", "content": "hi"}]}
    body.pop("messages" if path == "/v1/responses" else "input")
    key = {"Idempotency-Key": "k1"}
    asking = asyncio.create_task(program.ask("POST", path, body, key))
    await model.until(lambda m: m.open_streams == 1)
    asking.cancel()
    await asyncio.wait([asking])
    await seen.wait()
    await model.until(lambda m: m.open_streams == 0)
    store = api_house.house.store
    assert store is not None
    while (await store.health()).running:
        await asyncio.sleep(0.01)
    await program.ask("GET", "/v1/models")  # and its end is told by now
    go.set()
    async with asyncio.timeout(60):
        answer = await program.ask("POST", path, body, key)
    assert answer.status == 200
    assert "the answer" in str(answer.json)
    assert model.total == 1
