"""What the agent may promise over the API: nothing that would come after the answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from parley.protocol import InboundMessage
from parley.sessions.context import async_delivery_supported
from parley.surfaces.api.surface import ApiSurface
from parley.surfaces.base import Surface
from parley.surfaces.terminal.surface import TerminalSurface
from parley.surfaces.webhook.surface import WebhookSurface
from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.desk import at
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, begin, calls, delegate, let_go, result_of, waiting, works
from tests.servers.scripted_model import Reply
from tests.surfaces.api.program import ENDS, Program
from tests.surfaces.api.served import Served
from tests.waiting import until


def test_surfaces_deliver_later_unless_they_say_otherwise() -> None:
    assert Surface.supports_async_delivery is True
    assert TerminalSurface.supports_async_delivery is True
    assert WebhookSurface.supports_async_delivery is True
    assert ApiSurface.supports_async_delivery is False


# ── every way in ──


async def _chat(served: Served, text: str, **headers: str) -> None:
    body = {"model": "parley", "messages": [{"role": "user", "content": text}]}
    got = await served.post("/v1/chat/completions", body, headers=headers)
    assert got.status == 200, got.body


async def _streamed(served: Served, text: str) -> None:
    body = {"model": "parley", "stream": True, "messages": [{"role": "user", "content": text}]}
    got = await served.post("/v1/chat/completions", body)
    assert got.status == 200, got.body
    assert b"[DONE]" in got.body


async def _respond(served: Served, text: str) -> None:
    got = await served.post("/v1/responses", {"model": "parley", "input": text})
    assert got.status == 200, got.body


async def _run(served: Served, text: str) -> None:
    async with Program(served.api.where, served.key) as program:
        begun = await program.ask("POST", "/v1/runs", {"input": text}, {})
        assert begun.status == 202
        async for told in program.follow(begun.json["id"], None):
            if told.name in ENDS:
                return


_WAYS = [_chat, _streamed, _respond, _run]


@needs_bubblewrap
@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize(
    "asked", [{"notify_on_complete": True}, {"watch_patterns": ["built"]}], ids=["end", "lines"]
)
async def test_no_way_in_promises_to_tell_later(
    served: Served, house: House, scenes: Scenes, way: Any, asked: dict[str, Any]
) -> None:
    options = {"notify_on_complete": False} | asked
    scenes.when("build", begin(waiting("go", "echo built"), **options), Reply(text="it builds"))
    await way(served, "build")
    told = result_of(house)
    assert told["notify_on_complete"] is False
    assert "poll" in told["notify_unsupported"]
    assert "watch_patterns" not in told
    [work] = await works(house)
    assert (work.id, work.notify, work.state) == (told["process_id"], False, "running")
    asked_before = house.model.total
    let_go(house, "go")
    process = house.profile.home / "processes" / work.id / "exit.json"
    await until(process.exists)
    async with asyncio.timeout(60):
        while (await works(house))[0].state != "done":
            await asyncio.sleep(0.01)
    assert house.model.total == asked_before


@pytest.mark.parametrize("way", _WAYS)
async def test_by_every_way_a_task_for_the_background_is_done_now(
    served: Served, house: House, scenes: Scenes, way: Any
) -> None:
    scenes.when("fetch", delegate("dig", background=True), Reply(text="fetched"))
    scenes.when("dig", Reply(text="gold"))
    await way(served, "fetch")
    told = result_of(house)
    assert told["result"] == "gold"
    assert "synchronously" in told["note"]
    assert "status" not in told
    [work] = await works(house)
    assert (work.notify, work.state) == (False, "done")


async def test_a_task_that_nobody_wanted_in_the_background_has_no_note(
    served: Served, house: House, scenes: Scenes
) -> None:
    scenes.when("fetch", delegate("dig"), Reply(text="fetched"))
    await _chat(served, "fetch")
    assert "note" not in result_of(house)


@needs_bubblewrap
async def test_the_next_request_of_the_session_finds_the_process(
    served: Served, house: House, scenes: Scenes
) -> None:
    scenes.when("build", begin("echo built; exit 4"), Reply(text="it builds"))
    got = await served.post(
        "/v1/chat/completions",
        {"model": "parley", "messages": [{"role": "user", "content": "build"}]},
    )
    begun = result_of(house)["process_id"]
    await until((house.profile.home / "processes" / begun / "exit.json").exists)
    poll = calls(("process", {"action": "poll", "process_id": begun}))
    scenes.when("look", poll, Reply(text="looked"))
    await _chat(served, "look", **{"X-Parley-Session-Id": got.session})
    told = result_of(house)
    assert (told["process_id"], told["output"]) == (begun, "built\n")
    # Of another session it is not.
    await _chat(served, "look")
    assert "no process" in _last_result(house)


async def test_nothing_is_planned_over_the_api_and_nothing_is_sent_besides_the_answer(
    served: Served, house: House, scenes: Scenes
) -> None:
    plan = ("schedule", {"action": "add", "text": "wake me", "at": "+1h"})
    scenes.when("plan", calls(plan), Reply(text="not planned"))
    scenes.when("send", calls(("send_message", {"text": "by the way"})), Reply(text="not sent"))
    await _chat(served, "plan")
    assert "cannot deliver" in _last_result(house)
    await _chat(served, "send")
    assert "answer" in _last_result(house)
    assert house.store is not None
    for session in await house.store.sessions():
        assert await house.store.jobs(session.lane) == []
    assert house.desk.sent == []


def _last_result(house: House) -> str:
    results = [each for each in house.model.requests[-1].json["messages"] if each["role"] == "tool"]
    return str(results[-1]["content"])


async def test_a_task_ends_with_the_request_that_waits_for_it(
    served: Served, house: House, scenes: Scenes
) -> None:
    scenes.when("fetch", delegate("dig", background=True), Reply(text="fetched"))
    scenes.when("dig", Reply(text="gold", delay=60))
    asking = asyncio.create_task(_chat(served, "fetch"))
    await house.model.until(lambda model: model.total == 2)
    asking.cancel()
    await house.model.until(lambda model: model.open_streams == 0)
    async with asyncio.timeout(60):
        while (await works(house))[0].state != "stopped":
            await asyncio.sleep(0.01)


# ── the channel decides, not the session ──


@needs_bubblewrap
async def test_a_chat_beside_the_api_is_told_later_all_the_same(
    served: Served, house: House, scenes: Scenes
) -> None:
    """What is bound for a turn over the API is over with it."""
    scenes.when("build", begin("true"), Reply(text="it builds"))
    scenes.when("[Background", Reply(text="the build is over"))
    await _chat(served, "build")
    assert result_of(house)["notify_on_complete"] is False
    assert async_delivery_supported() is True
    await house.desk.ask("build")
    assert result_of(house)["notify_on_complete"] is True
    await until(lambda: "the build is over" in house.desk.texts())
    await _chat(served, "build")
    assert result_of(house)["notify_on_complete"] is False
    assert [work.notify for work in await works(house)] == [False, True, False]


@needs_bubblewrap
async def test_the_same_session_is_told_later_where_a_turn_comes_by_a_chat(
    served: Served, house: House, scenes: Scenes
) -> None:
    scenes.when("build", begin("true"), Reply(text="it builds"))
    scenes.when("[Background", Reply(text="the build is over"))
    await _chat(served, "build")
    assert house.store is not None
    assert house.gateway is not None
    [session] = [one for one in await house.store.sessions() if ":api:" in one.lane]
    intake = house.gateway._servings["default"].intake
    await intake.admit(InboundMessage(at("one"), "build", "e1", internal=True), lane=session.lane)
    await until(lambda: house.desk.texts() == ["it builds", "the build is over"])
    over_api, in_chat = await works(house)
    assert (over_api.session, in_chat.session) == (session.id, session.id)
    assert (over_api.notify, in_chat.notify) == (False, True)
