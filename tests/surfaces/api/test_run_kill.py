"""Runs go on in the next process: after a stop, after a crash, and after any number of kills."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path

import aiohttp
import pytest

from parley.agent.tools import TOOLS
from parley.gateway.intake import FrontDoor
from parley.surfaces.api.surface import ApiSurface
from tests.gateway.hand_tool import HandTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.program import ENDS, ApiHouse, Program, Told, last_text
from tests.surfaces.api.run_kills import kill_while_running
from tests.waiting import until

HANGS = Reply(text="one two three four", chunks=4, chunk_delay=30)
WHOLE = Reply(text="one two three four", chunks=4)


@pytest.mark.timeout(300)  # a busy machine is slow to start a process a dozen times
async def test_every_run_ends_once_with_its_answer_however_often_the_gateway_is_killed(
    tmp_path: Path,
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")

    tally = await kill_while_running(tmp_path, kills=12, seed=seed)

    assert (tally.lost, tally.doubled, tally.changed, tally.faults) == ([], [], [], []), seed
    assert tally.kills == 12
    assert tally.resumed > 0
    assert tally.reconnections > 0


# ── one at a time ──


async def _seen_so_far(program: Program, run: str) -> list[Told]:
    """Read until text has come."""
    seen: list[Told] = []
    async with aclosing(program.follow(run)) as events:
        async for told in events:
            seen.append(told)
            if told.name == "text.delta":
                break
    return seen


@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_a_run_goes_on_after_a_restart(
    api_house: ApiHouse, program: Program, stage: Stage, model: ScriptedModel, how: str
) -> None:
    stage.then(HANGS, WHOLE)
    run = await program.start("hello", session_id="line")
    seen = await _seen_so_far(program, run["id"])
    if how == "stop":
        await api_house.restart()
    else:
        await api_house.crash()
        await api_house.begin_again()
    rest = await program.log(run["id"], seen[-1].number)
    log = await program.log(run["id"])
    assert log == seen + rest
    assert [told.number for told in log] == list(range(1, len(log) + 1))
    assert [told.name for told in rest[:2]] == ["run.resumed", "text.reset"]
    assert [told.name in ENDS for told in log].count(True) == 1
    done = await program.run(run["id"])
    assert (done["status"], done["output"]) == ("completed", "one two three four")
    assert last_text(log) == done["output"], "what was said before the restart is withdrawn"
    assert model.total == 2
    again = await program.start("next", session_id="line")
    assert (await program.over(again["id"]))["output"] == "echo: next"


async def test_what_a_run_says_before_the_api_is_open_is_in_its_log(
    api_house: ApiHouse,
    program: Program,
    stage: Stage,
    model: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage.then(HANGS, Reply(text="one two three four", chunks=4, chunk_delay=0.02))
    run = await program.start("hello")
    seen = await _seen_so_far(program, run["id"])
    await api_house.crash()
    start = ApiSurface.start

    async def start_late(api: ApiSurface, door: FrontDoor) -> None:
        await model.until(lambda m: m.total == 2 and m.open_streams == 0)
        await start(api, door)

    monkeypatch.setattr(ApiSurface, "start", start_late)
    await api_house.begin_again()
    log = await program.log(run["id"])
    assert log[: len(seen)] == seen
    assert [told.name for told in log[len(seen) :]][:2] == ["run.resumed", "text.reset"]
    assert log[-1].name == "run.completed"
    assert last_text(log) == "one two three four"


async def test_a_stop_of_the_gateway_does_not_wait_for_those_who_follow(
    api_house: ApiHouse, program: Program, stage: Stage
) -> None:
    stage.then(HANGS)
    run = await program.start("hello")
    following = [asyncio.create_task(program.log(run["id"])) for _ in range(3)]
    await program.first(run["id"], "text.delta")
    async with asyncio.timeout(60):
        await api_house.house.close()
    ends = await asyncio.gather(*following, return_exceptions=True)
    assert all(isinstance(end, aiohttp.ClientError) or end[-1].name not in ENDS for end in ends)  # type: ignore[index]


async def test_queued_runs_wait_through_a_restart(
    api_house: ApiHouse, program: Program, stage: Stage
) -> None:
    stage.then(HANGS, WHOLE)
    texts = ["first", "second", "third"]
    runs = [await program.start(text, session_id="line") for text in texts]
    await program.first(runs[0]["id"], "text.delta")
    await api_house.crash()
    await api_house.begin_again()
    ended = [await program.over(run["id"]) for run in runs]
    assert [run["output"] for run in ended] == ["one two three four", "echo: second", "echo: third"]


async def test_a_run_that_is_over_is_the_same_after_a_restart(
    api_house: ApiHouse, program: Program
) -> None:
    done = []
    for text in ("hello", "[[status 401]]"):
        run = await program.start(text, {"Idempotency-Key": text})
        done.append((await program.over(run["id"]), await program.log(run["id"])))
    await api_house.restart()
    for (shown, log), text in zip(done, ("hello", "[[status 401]]"), strict=True):
        assert await program.run(shown["id"]) == shown
        assert await program.log(shown["id"]) == log
        assert await program.start(text, {"Idempotency-Key": text}) == shown


async def test_a_turn_that_ended_just_before_a_crash_ends_its_run(
    api_house: ApiHouse, program: Program, model: ScriptedModel
) -> None:
    run = await program.start("[[tool now {}]]")
    done = await program.over(run["id"])
    log = await program.log(run["id"])
    await api_house.crash()
    with closing(sqlite3.connect(api_house.house.profile.database_file)) as db, db:
        db.execute("UPDATE request SET state = 'queued', result = NULL, ended_at = NULL")
        db.execute("DELETE FROM request_event WHERE number = ?", (log[-1].number,))
    await api_house.begin_again()
    again = await program.over(run["id"])
    same = ("status", "output", "usage", "error", "last_event_id", "session_id")
    assert {name: again[name] for name in same} == {name: done[name] for name in same}
    assert await program.log(run["id"]) == log
    assert model.total == 2


async def test_a_run_that_was_written_down_and_never_taken_can_be_asked_for_again(
    api_house: ApiHouse, program: Program
) -> None:
    """A crash between the two: nobody was told of it, and its key is free."""
    key = {"Idempotency-Key": "k1"}
    run = await program.start("hello", key)
    await program.over(run["id"])
    await api_house.crash()
    with closing(sqlite3.connect(api_house.house.profile.database_file)) as db, db:
        db.execute("UPDATE request SET state = 'queued', result = NULL, ended_at = NULL")
        db.execute("DELETE FROM request_event")
        db.execute("UPDATE inbox SET dedupe = 'another'")
    await api_house.begin_again()
    again = await program.start("hello", key)
    assert (await program.over(again["id"]))["output"] == "echo: hello"
    assert (await program.ask("GET", f"/v1/runs/{run['id']}")).status == 404


async def test_a_tool_that_may_have_run_is_not_run_again(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandTool()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    api_house = ApiHouse(house)
    await api_house.open(agent={"tools": ["hand"]})
    stage.then(Reply(tool_calls=(("hand", {"word": "a"}),)), Reply(text="I do not know."))
    async with api_house.program() as program:
        run = await program.start("hello")
        await until(lambda: hand.began)
        assert house.store is not None
        while await house.store.last_request_event(run["id"]) < 3:
            await asyncio.sleep(0.005)
        await api_house.crash()
        await api_house.begin_again()
        done = await program.over(run["id"])
        names = [told.name for told in await program.log(run["id"])]
    assert done["output"] == "I do not know."
    assert hand.began == ["a"]
    assert names.count("tool.started") == 1


# ── to be stopped ──


@pytest.mark.parametrize("queued", [False, True])
async def test_a_stop_that_a_crash_cut_short_is_finished(
    api_house: ApiHouse, program: Program, stage: Stage, model: ScriptedModel, queued: bool
) -> None:
    stage.then(HANGS)
    first = await program.start("first", session_id="line")
    await program.first(first["id"], "text.delta")
    run = await program.start("second", session_id="line") if queued else first
    store = api_house.house.store
    assert store is not None
    assert await store.mark_request(run["id"], "stopping")
    await api_house.crash()
    stage.then(WHOLE if queued else HANGS, HANGS)
    await api_house.begin_again()
    stopped = await program.over(run["id"])
    stage.clear()
    assert (stopped["status"], stopped["output"]) == ("cancelled", None)
    log = await program.log(run["id"])
    assert [told.name in ENDS for told in log].count(True) == 1
    assert log[-1].name == "run.cancelled"
    again = await program.start("next", session_id="line")
    assert (await program.over(again["id"]))["status"] == "completed"
    if queued:
        assert (await program.over(first["id"]))["output"] == "one two three four"


async def test_what_is_to_be_stopped_is_not_begun_again(
    api_house: ApiHouse, program: Program, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(HANGS)
    run = await program.start("first", session_id="line")
    await program.first(run["id"], "text.delta")
    store = api_house.house.store
    assert store is not None
    assert await store.mark_request(run["id"], "stopping")
    await api_house.crash()
    await api_house.begin_again()
    assert (await program.over(run["id"]))["status"] == "cancelled"
    again = await program.start("next", session_id="line")
    await program.over(again["id"])
    assert model.total == 2, "the stopped one was not asked of the model once more"


async def test_a_run_is_stopped_in_the_next_process(
    api_house: ApiHouse, program: Program, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(HANGS, HANGS)
    run = await program.start("hello", session_id="line")
    await program.first(run["id"], "text.delta")
    await api_house.crash()
    await api_house.begin_again()
    await program.first(run["id"], "run.resumed")
    await model.until(lambda m: m.open_streams == 1 and m.total == 2)
    assert (await program.stop(run["id"]))["status"] == "cancelled"
    await model.until(lambda m: m.open_streams == 0)
    again = await program.start("next", session_id="line")
    assert (await program.over(again["id"]))["status"] == "completed"
    assert [told.name for told in await program.log(run["id"])][-1] == "run.cancelled"
