"""Delegated tasks: another agent works on them alone, and its result comes back once."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

from parley.protocol import SessionSource
from parley.sessions.key import build_session_key
from parley.storage.contract import TurnResult
from parley.storage.hands import Limit, Payer, Work
from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.desk import at
from tests.gateway.house import House
from tests.gateway.workshop import (
    Scenes,
    begin,
    calls,
    delegate,
    let_go,
    result_of,
    run,
    waiting,
    works,
)
from tests.servers.scripted_model import Reply
from tests.servers.scripted_reply import Usage
from tests.waiting import until


def _lane(id: str) -> str:
    return build_session_key(SessionSource("task", chat_id=id))


def _offered(house: House, word: str) -> set[str]:
    """The tools that the model was told of when it was asked this."""
    found = [r.json for r in house.model.requests if r.json["messages"][-1]["content"] == word]
    return {tool["function"]["name"] for tool in found[0].get("tools", [])}


def _results(house: House) -> list[str]:
    """What the calls of the newest turn came to."""
    return [str(each["content"]) for each in house.asked() if each["role"] == "tool"]


async def _running(house: House) -> list[Any]:
    assert house.store is not None
    return await house.store.works()


async def _until_no_work(house: House) -> None:
    async with asyncio.timeout(60):
        while await _running(house):
            await asyncio.sleep(0.01)


async def _until_runs(house: House, count: int) -> None:
    """Wait until so many commands run."""
    folder = house.profile.home / "processes"
    await until(lambda: len(list(folder.glob("proc_*/keeper.json"))) == count)


# ── waited for ──


async def test_whoever_delegates_waits_for_the_result(house: House, scenes: Scenes) -> None:
    scenes.when("ask around", delegate("count the sheep", context="two farms"), Reply(text="42"))
    scenes.when("count the sheep", Reply(text="There are 42."))
    desk = await house.open()
    assert await desk.ask("ask around") == "42"
    told = result_of(house)
    assert told["result"] == "There are 42."
    assert "note" not in told
    task = next(r.json for r in house.model.requests if "count the sheep" in str(r.json))
    assert [m["role"] for m in task["messages"]] == ["system", "user"]
    assert "two farms" in task["messages"][-1]["content"]
    assert "ask around" not in str(task)
    [work] = await works(house)
    assert (work.kind, work.notify, work.state) == ("task", False, "done")
    assert desk.texts() == ["42"]


@needs_bubblewrap
async def test_tasks_of_one_reply_run_side_by_side(house: House, scenes: Scenes) -> None:
    scenes.when(
        "both",
        calls(("delegate_task", {"goal": "left"}), ("delegate_task", {"goal": "right"})),
        Reply(text="joined"),
    )
    scenes.when("left", run(waiting("go")), Reply(text="the left one"))
    scenes.when("right", run(waiting("go")), Reply(text="the right one"))
    desk = await house.open()
    await desk.say("both")
    await _until_runs(house, 2)
    let_go(house, "go")
    await until(lambda: desk.texts() == ["joined"])
    assert [json.loads(text)["result"] for text in _results(house)] == [
        "the left one",
        "the right one",
    ]


async def test_many_tasks_and_one_place_to_run_them(house: House, scenes: Scenes) -> None:
    """Whoever waits for a task holds no place that the task needs."""
    goals = [f"goal {number}" for number in range(4)]
    scenes.when("all", calls(*(("delegate_task", {"goal": goal}) for goal in goals)), Reply("ok"))
    desk = await house.open(gateway={"running_turns": 1}, agent={"running_tasks": 1})
    assert await desk.ask("all") == "ok"
    assert {json.loads(text)["result"] for text in _results(house)} == {
        f"heard: {goal}" for goal in goals
    }


async def test_a_task_that_fails_is_told_to_whoever_delegated_it(
    house: House, scenes: Scenes
) -> None:
    scenes.when("try", delegate("break"), Reply(text="it broke"))
    scenes.when("break", Reply(status=400, body='{"error": {"message": "no"}}'))
    desk = await house.open(access={"owners": ["desk:ann"]})
    assert await desk.ask("try") == "it broke"
    [told] = _results(house)
    assert "scripted" in told
    assert not told.startswith("{")
    assert [work.state for work in await works(house)] == ["failed"]


# ── what it may do ──


async def test_a_task_has_the_tools_of_the_surface_without_those_that_need_people(
    house: House, scenes: Scenes
) -> None:
    scenes.when("fetch", delegate("dig"), Reply(text="dug"))
    desk = await house.open()
    await desk.ask("fetch")
    above, below = _offered(house, "fetch"), _offered(house, "dig")
    assert above - below == {"clarify", "delegate_task", "memory", "schedule", "send_message"}
    assert {"terminal", "read_file"} <= below <= above


async def test_a_task_may_do_no_more_than_the_surface_it_was_delegated_from(
    house: House, scenes: Scenes
) -> None:
    scenes.when("fetch", delegate("dig", tools=["todo", "terminal"]), Reply(text="dug"))
    scenes.when("freely", delegate("swim"), Reply(text="swum"))
    surface = {"desk": ["delegate_task", "todo", "read_file"], "task": ["terminal"]}
    desk = await house.open(agent={"surfaces": surface})
    await desk.ask("fetch")
    await desk.ask("freely", chat="two")  # the result of a task taints its conversation
    assert _offered(house, "dig") == {"todo"}
    assert _offered(house, "swim") == {"todo", "read_file"}


async def test_a_task_cannot_delegate(house: House, scenes: Scenes) -> None:
    scenes.when("fetch", delegate("pass it on"), Reply(text="done"))
    scenes.when("pass it on", delegate("somebody else"), Reply(text="I could not"))
    desk = await house.open()
    await desk.ask("fetch")
    assert result_of(house)["result"] == "I could not"
    assert len(await works(house)) == 1
    assert not any("somebody else" in str(r.json["messages"][-1]) for r in house.model.requests)


async def test_what_a_task_costs_is_counted_for_whoever_delegated_it(
    house: House, scenes: Scenes
) -> None:
    scenes.when("fetch", delegate("dig"), Reply(text="dug", usage=Usage(1, 1)))
    scenes.when("dig", Reply(text="deep", usage=Usage(1000, 500)))
    desk = await house.open()
    await desk.ask("fetch")
    assert house.store is not None
    payer = Payer("desk:ann", (await house.session()).id)
    limits = [Limit(whose, "day", 0, math.inf) for whose in ("user", "session", "profile")]
    spent = [each.tokens for each in await house.store.spent(payer, limits)]
    # Its two calls, 10 and 2, and the 1500 of the task.
    assert spent == [1512, 1512, 1512]


@needs_bubblewrap
async def test_what_a_task_left_running_ends_with_it(house: House, scenes: Scenes) -> None:
    scenes.when("fetch", delegate("serve"), Reply(text="served"))
    scenes.when("serve", begin(waiting("never")), Reply(text="it serves"))
    desk = await house.open()
    assert await desk.ask("fetch") == "served"
    requests = [r.json for r in house.model.requests if r.json["messages"][-1]["role"] == "tool"]
    begun = json.loads(requests[0]["messages"][-1]["content"])
    # A task has nobody to tell later.
    assert begun["notify_on_complete"] is False
    assert "poll" in begun["notify_unsupported"]
    await _until_no_work(house)
    assert {work.kind: work.state for work in await works(house)} == {
        "task": "done",
        "process": "stopped",
    }


@needs_bubblewrap
async def test_stopping_the_turn_stops_the_task_it_waits_for(house: House, scenes: Scenes) -> None:
    scenes.when("fetch", delegate("dig"), Reply(text="dug"))
    scenes.when("dig", begin(waiting("never")), run(waiting("never")), Reply(text="deep"))
    desk = await house.open()
    await desk.say("fetch")
    await _until_runs(house, 2)
    await desk.ask("/stop")
    await _until_no_work(house)
    assert {work.kind: work.state for work in await works(house)} == {
        "task": "stopped",
        "process": "stopped",
    }
    folder = house.profile.home / "processes"
    await until(lambda: len(list(folder.glob("proc_*/exit.json"))) == 2)
    assert len(desk.texts()) == 1


async def test_stopping_the_turn_drops_tasks_that_wait_for_their_place(
    house: House, scenes: Scenes
) -> None:
    goals = [f"goal {number}" for number in range(3)]
    scenes.when("all", calls(*(("delegate_task", {"goal": goal}) for goal in goals)))
    scenes.when("goal", Reply(text="slow", delay=60))
    desk = await house.open(agent={"running_tasks": 1})
    await desk.say("all")
    await house.model.until(lambda model: model.open_streams == 1 and model.total == 2)
    async with asyncio.timeout(60):
        while len(await _running(house)) < 3:
            await asyncio.sleep(0.01)
    await desk.ask("/stop")
    await _until_no_work(house)
    assert [work.state for work in await works(house)] == ["stopped"] * 3
    await house.model.until(lambda model: model.open_streams == 0)
    assert await desk.ask("next") == "heard: next"
    assert house.model.total == 3


# ── in the background ──


async def test_the_result_of_a_background_task_arrives_as_a_message(
    house: House, scenes: Scenes
) -> None:
    scenes.when("fetch", delegate("dig", background=True), Reply(text="they dig"))
    scenes.when("[Delegated task", Reply(text="they found gold"))
    scenes.when("dig", Reply(text="gold", delay=0.3))
    desk = await house.open()
    assert await desk.ask("fetch") == "they dig"
    told = result_of(house)
    assert told["status"] == "running"
    assert "result" not in told
    await until(lambda: "they found gold" in desk.texts())
    assert "is done" in house.words()[-1]
    assert "gold" in house.words()[-1]
    await _until_no_work(house)
    [work] = await works(house)
    assert (work.id, work.notify, work.state) == (told["task_id"], True, "done")
    assert desk.texts() == ["they dig", "they found gold"]


async def test_a_background_task_that_fails_is_told_too(house: House, scenes: Scenes) -> None:
    scenes.when("fetch", delegate("dig", background=True), Reply(text="they dig"))
    scenes.when("[Delegated task", Reply(text="oh dear"))
    scenes.when("dig", Reply(status=400, delay=0.2, body='{"error": {"message": "no"}}'))
    desk = await house.open()
    await desk.ask("fetch")
    await until(lambda: "oh dear" in desk.texts())
    assert "failed" in house.words()[-1]


async def test_the_result_for_a_session_that_is_gone_is_only_told(
    house: House, scenes: Scenes
) -> None:
    scenes.when("fetch", delegate("dig", background=True), Reply(text="they dig"))
    scenes.when("dig", Reply(text="gold", delay=0.5))
    desk = await house.open()
    await desk.ask("fetch")
    await desk.ask("/new")
    await until(lambda: any("gold" in text for text in desk.texts()))
    assert (desk.sent[-1].kind, "earlier conversation" in desk.texts()[-1]) == ("notice", True)
    assert await house.transcript() == []
    await _until_no_work(house)
    assert house.model.total == 3


@pytest.mark.parametrize("gently", [True, False])
async def test_a_task_outlives_its_gateway(house: House, scenes: Scenes, gently: bool) -> None:
    scenes.when("fetch", delegate("dig", background=True), Reply(text="they dig"))
    scenes.when("[Delegated task", Reply(text="they found gold"))
    scenes.when("dig", Reply(text="gold", delay=1.0))
    desk = await house.open()
    await desk.ask("fetch")
    await house.model.until(lambda model: model.total == 3)
    await (house.close() if gently else house.crash())
    desk = await house.open()
    await until(lambda: desk.texts() == ["they found gold"])
    await house.close()
    await house.open()
    said = [text for role, text in await house.said() if role == "user"]
    assert sum("is done" in text for text in said) == 1


async def test_whoever_waited_for_a_task_waits_for_the_same_one_after_a_restart(
    house: House, scenes: Scenes
) -> None:
    scenes.when("fetch", delegate("dig"), Reply(text="dug"))
    scenes.when("dig", Reply(text="gold", delay=1.0))
    desk = await house.open()
    await desk.say("fetch")
    await house.model.until(lambda model: model.total == 2)
    await house.close()
    desk = await house.open()
    await until(lambda: desk.texts() == ["dug"])
    assert result_of(house)["result"] == "gold"
    assert [work.state for work in await works(house)] == ["done"]
    assert house.store is not None
    lanes = [each.lane for each in await house.store.sessions() if ":task:" in each.lane]
    assert len(lanes) == 1


async def test_several_may_wait_for_the_same_task(house: House, scenes: Scenes) -> None:
    """After a restart whoever delegated it waits, and so does whoever sees to its end."""
    scenes.when("fetch", delegate("dig", background=True), Reply(text="they dig"))
    scenes.when("[Delegated", Reply(text="they found gold"))
    scenes.when("dig", Reply(text="gold", delay=0.5))
    desk = await house.open()
    assert house.store is not None
    assert house.gateway is not None
    look = house.store.turn_result
    looked, go_on = asyncio.Event(), asyncio.Event()

    async def look_slowly(dedupe: str) -> TurnResult | None:
        found = await look(dedupe)
        if not looked.is_set():
            looked.set()
            await go_on.wait()
        return found

    house.store.turn_result = look_slowly  # type: ignore[method-assign]
    await desk.say("fetch")
    await looked.wait()
    [work] = await _running(house)
    async with asyncio.timeout(60):
        while (found := await look(f"task:{work.id}")) is None or found.state != "done":
            await asyncio.sleep(0.01)
    tasks = house.gateway._servings["default"]._delegated
    assert (await tasks.result(work.id)).result == "gold"
    go_on.set()
    await until(lambda: desk.texts() == ["they dig", "they found gold"])


async def test_a_task_whose_parent_is_gone_after_a_restart_is_not_run(
    house: House, scenes: Scenes
) -> None:
    desk = await house.open()
    await desk.ask("hello")
    assert house.store is not None
    session = await house.session()
    body = {"goal": "swim", "user": "desk:ann", "platform": "desk", "tools": None, "turn": 1}
    lost = Work("task_1", "task", session.lane, session.id, 0, at("one"), notify=False, body=body)
    assert await house.store.begin_work(lost)
    await house.close()
    asked = len(house.model.requests)
    await house.open()
    await _until_no_work(house)
    assert [work.state for work in await works(house)] == ["stopped"]
    assert len(house.model.requests) == asked
