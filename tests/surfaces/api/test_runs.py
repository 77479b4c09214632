"""Runs: begun at once, looked at, stopped, and told apart by whose they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from parley.agent.tools import TOOLS
from parley.gateway.requests import ProfileDoor
from parley.protocol import InboundMessage, SessionSource
from parley.sessions.key import build_session_key
from parley.storage.contract import Receipt
from tests.gateway.hand_tool import HandTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.program import ApiHouse, Program, last_text
from tests.waiting import until

HANGS = Reply(text="one two three four", chunks=4, chunk_delay=30)
LATE = Reply(text="never said", delay=300)
A_CALL = Reply(tool_calls=(("hand", {"word": "a"}),))
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
}


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> HandTool:
    hand = HandTool()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    return hand


async def said_in(house: House, session: str) -> list[tuple[str, str]]:
    assert house.store is not None
    owner = "house:local"
    source = SessionSource(
        "api", chat_id=f"{owner}/{session}", user_id=owner, profile=house.profile.name
    )
    found = await house.store.session_of(build_session_key(source))
    assert found is not None
    entries = await house.store.transcript(found.id, whole=True)
    return [(entry.message.role, entry.message.text) for entry in entries]


# ── begun, and over ──


async def test_a_run_is_begun_at_once_and_told_of_when_it_is_over(
    program: Program, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(HANGS)
    async with asyncio.timeout(60):
        answer = await program.ask(
            "POST", "/v1/runs", {"input": "hello", "metadata": {"for": "a test"}}
        )
    assert answer.status == 202
    run = answer.json
    assert (run["object"], run["status"], run["model"]) == ("run", "queued", "default")
    assert (run["output"], run["usage"], run["error"]) == (None, None, None)
    assert (run["ended_at"], run["last_event_id"]) == (None, 0)
    assert run["metadata"] == {"for": "a test"}
    assert run["id"].startswith("run_")
    assert answer.headers["X-Parley-Session-Id"] == run["session_id"]

    await model.until(lambda m: m.open_streams == 1)
    going = await program.until(run["id"], "running")
    assert (going["output"], going["ended_at"]) == (None, None)
    assert going["last_event_id"] >= 1
    assert going["metadata"] == run["metadata"]


async def test_a_run_that_is_over_has_its_answer_and_its_cost(program: Program) -> None:
    run = await program.start("hello")
    done = await program.over(run["id"])
    assert (done["status"], done["output"], done["error"]) == ("completed", "echo: hello", None)
    assert (done["usage"]["input_tokens"], done["usage"]["output_tokens"]) == (7, 3)
    assert done["usage"]["total_tokens"] == 10
    assert done["ended_at"] >= done["created_at"] == run["created_at"]
    assert "output_items" not in done
    same = ("id", "session_id", "model", "created_at", "metadata")
    assert {name: done[name] for name in same} == {name: run[name] for name in same}
    log = await program.log(run["id"])
    assert done["last_event_id"] == log[-1].number


async def test_every_model_call_of_a_run_is_in_its_usage(
    api_house: ApiHouse, program: Program, stage: Stage
) -> None:
    run = await program.start("[[tool now {}]]")
    done = await program.over(run["id"])
    assert done["output"].startswith("tool said: ")
    assert (done["usage"]["input_tokens"], done["usage"]["output_tokens"]) == (14, 6)


async def test_a_run_that_fails_says_why_in_one_sentence(program: Program) -> None:
    run = await program.start("[[status 401]]")
    failed = await program.over(run["id"])
    assert (failed["status"], failed["output"]) == ("failed", None)
    assert "\n" not in failed["error"]["message"]
    assert failed["error"]["type"]
    [*_, end] = await program.log(run["id"])
    assert (end.name, end.data["error"]) == ("run.failed", failed["error"])


async def test_a_run_that_cannot_be_read_is_refused_and_nothing_is_kept(
    api_house: ApiHouse, program: Program
) -> None:
    bodies: list[dict[str, Any]] = [
        {},
        {"input": ""},
        {"input": "hello", "stream": True},
        {"input": "hello", "session_id": "bad\nid"},
        {"input": "hello", "previous_response_id": "resp_none"},
        {"input": "hello", "model": "nobody"},
    ]
    codes = [(await program.ask("POST", "/v1/runs", body)).status for body in bodies]
    assert codes == [400, 400, 400, 400, 404, 404]
    assert api_house.house.store is not None
    assert await api_house.house.store.open_requests() == []


async def test_an_unknown_run_is_not_there(program: Program) -> None:
    asked = [
        await program.ask("GET", "/v1/runs/run_none"),
        await program.ask("GET", "/v1/runs/run_none/events"),
        await program.ask("POST", "/v1/runs/run_none/stop"),
        await program.decide("run_none", "appr_1", "approve"),
    ]
    assert [answer.status for answer in asked] == [404, 404, 404, 404]


async def test_a_run_of_another_key_is_not_there(api_house: ApiHouse, stage: Stage) -> None:
    stage.then(HANGS)
    async with api_house.program_with("mine") as mine, api_house.program_with("theirs") as theirs:
        run = await mine.start("hello", session_id="shared")
        address = f"/v1/runs/{run['id']}"
        asked = [
            await theirs.ask("GET", address),
            await theirs.ask("GET", f"{address}/events"),
            await theirs.ask("POST", f"{address}/stop"),
            await theirs.decide(run["id"], "appr_1", "approve"),
        ]
        assert [answer.status for answer in asked] == [404, 404, 404, 404]
        assert (await mine.run(run["id"]))["status"] in {"queued", "running"}
        other = await theirs.start("me too", session_id="shared")
        assert (await theirs.over(other["id"]))["output"] == "echo: me too"


async def test_a_key_that_may_only_chat_has_no_runs(api_house: ApiHouse) -> None:
    async with api_house.program_with("chats", "chat") as chats:
        answer = await chats.ask("POST", "/v1/runs", {"input": "hello"})
    assert answer.status == 403


# ── conversations ──


async def test_runs_of_one_session_go_on_from_each_other(
    api_house: ApiHouse, program: Program
) -> None:
    first = await program.start("one", session_id="talk")
    await program.over(first["id"])
    answer = await program.ask(
        "POST", "/v1/runs", {"input": "two"}, {"X-Parley-Session-Id": "talk"}
    )
    assert answer.headers["X-Parley-Session-Id"] == answer.json["session_id"] == "talk"
    await program.over(answer.json["id"])
    assert api_house.house.words() == ["one", "echo: one", "two"]
    fresh = await program.start("three")
    await program.over(fresh["id"])
    assert fresh["session_id"] not in {"", "talk"}
    assert api_house.house.words() == ["three"]


async def test_a_run_goes_on_from_a_response(api_house: ApiHouse, program: Program) -> None:
    told = await program.ask("POST", "/v1/responses", {"input": "one"})
    run = await program.start("two", previous_response_id=told.json["id"])
    assert (await program.over(run["id"]))["output"] == "echo: two"
    assert api_house.house.words() == ["one", "echo: one", "two"]
    assert run["session_id"] != told.headers["X-Parley-Session-Id"]
    again = await program.start("three", session_id=run["session_id"])
    await program.over(again["id"])
    assert api_house.house.words() == ["one", "echo: one", "two", "echo: two", "three"]
    other = {"input": "else", "previous_response_id": told.json["id"]}
    await program.ask("POST", "/v1/responses", other)
    assert api_house.house.words() == ["one", "echo: one", "else"]


async def test_many_runs_of_one_session_go_one_after_the_other(
    api_house: ApiHouse, program: Program, model: ScriptedModel
) -> None:
    texts = [f"[[chunks 3]][[pace 0.01]] number {number}" for number in range(6)]
    runs = [await program.start(text, session_id="line") for text in texts]
    ended = [await program.over(run["id"]) for run in runs]
    assert model.max_open_streams == 1
    assert [run["output"] for run in ended] == [f"echo: {text}" for text in texts]
    said = [text for role, text in await said_in(api_house.house, "line") if role == "user"]
    assert said == texts


async def test_runs_of_different_sessions_go_side_by_side(
    program: Program, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(*[HANGS] * 3)
    for _ in range(3):
        await program.start("hello")
    await model.until(lambda m: m.open_streams == 3)


async def test_a_run_behind_another_is_queued(
    program: Program, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(HANGS)
    first = await program.start("first", session_id="line")
    await program.until(first["id"], "running")
    second = await program.start("second", session_id="line")
    assert (await program.run(second["id"]))["status"] == "queued"
    await program.stop(first["id"])
    assert (await program.over(second["id"]))["output"] == "echo: second"


# ── the program's own tools ──


async def test_calls_for_the_program_end_the_run(
    api_house: ApiHouse, program: Program, stage: Stage
) -> None:
    stage.then(Reply(tool_calls=(("weather", {"town": "Bern"}),)))
    run = await program.start("and the weather?", session_id="w", tools=[WEATHER])
    done = await program.over(run["id"])
    assert done["status"] == "completed"
    [call] = [item for item in done["output_items"] if item["type"] == "function_call"]
    assert (call["name"], call["arguments"]) == ("weather", '{"town":"Bern"}')
    [*_, end] = await program.log(run["id"])
    assert end.data["output_items"] == done["output_items"]

    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    answer = await program.ask(
        "POST", "/v1/runs", {"input": [result], "session_id": "w", "tools": [WEATHER]}
    )
    assert answer.status == 202, answer
    await program.over(answer.json["id"])
    assert [m["role"] for m in api_house.house.asked()] == ["user", "assistant", "tool"]
    assert api_house.house.words()[-1] == "sun"


# ── once for one key ──


async def test_the_same_key_is_the_same_run(program: Program, model: ScriptedModel) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await program.start("hello", key)
    done = await program.over(first["id"])
    again = await program.ask("POST", "/v1/runs", {"input": "hello"}, key)
    assert again.status == 202
    assert again.json == done
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["X-Parley-Session-Id"] == first["session_id"]
    assert model.total == 1
    other = await program.ask("POST", "/v1/runs", {"input": "something else"}, key)
    assert (other.status, other.code) == (409, "idempotency_key_reused")


async def test_the_same_key_tells_how_the_run_stands(program: Program, stage: Stage) -> None:
    stage.then(HANGS)
    key = {"Idempotency-Key": "k1"}
    first = await program.start("hello", key)
    await program.until(first["id"], "running")
    again = await program.start("hello", key)
    assert (again["id"], again["status"]) == (first["id"], "running")


async def test_many_at_once_with_one_key_are_one_run(
    program: Program, model: ScriptedModel
) -> None:
    key = {"Idempotency-Key": "k1"}
    begun = await asyncio.gather(*(program.start("hello", key) for _ in range(8)))
    assert len({run["id"] for run in begun}) == 1
    assert (await program.over(begun[0]["id"]))["output"] == "echo: hello"
    assert model.total == 1


async def test_a_key_of_another_program_is_another_run(api_house: ApiHouse) -> None:
    key = {"Idempotency-Key": "k1"}
    async with api_house.program_with("mine") as mine, api_house.program_with("theirs") as theirs:
        runs = [await each.start("hello", key) for each in (mine, theirs)]
    assert runs[0]["id"] != runs[1]["id"]


async def test_a_program_that_leaves_while_it_begins_a_run_finds_it_under_its_key(
    api_house: ApiHouse, program: Program, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = asyncio.Event(), asyncio.Event()
    admit = ProfileDoor.admit

    async def admit_late(door: ProfileDoor, message: InboundMessage) -> Receipt:
        reached.set()
        await go.wait()
        return await admit(door, message)

    monkeypatch.setattr(ProfileDoor, "admit", admit_late)
    key = {"Idempotency-Key": "k1"}
    asking = asyncio.create_task(program.start("hello", key))
    await reached.wait()
    asking.cancel()
    await asyncio.wait([asking])
    await until(lambda: api_house.connections == 0)
    go.set()
    run = await program.start("hello", key)
    assert (await program.over(run["id"]))["output"] == "echo: hello"
    assert model.total == 1


# ── stopped ──


async def test_a_queued_run_is_stopped_before_it_begins(
    program: Program, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(HANGS)
    first = await program.start("first", session_id="line")
    await program.until(first["id"], "running")
    second = await program.start("second", session_id="line")
    stopped = await program.stop(second["id"])
    assert (stopped["status"], stopped["output"], stopped["error"]) == ("cancelled", None, None)
    assert [told.name for told in await program.log(second["id"])] == ["run.cancelled"]
    assert (await program.run(first["id"]))["status"] == "running"
    await program.stop(first["id"])
    third = await program.start("third", session_id="line")
    assert (await program.over(third["id"]))["output"] == "echo: third"
    assert "second" not in str([request.json["messages"] for request in model.requests])


async def test_a_run_is_stopped_while_the_model_speaks(
    api_house: ApiHouse, program: Program, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(HANGS)
    run = await program.start("hello", session_id="line")
    await program.first(run["id"], "text.delta")
    stopped = await program.stop(run["id"])
    assert (stopped["status"], stopped["output"], stopped["error"]) == ("cancelled", None, None)
    await model.until(lambda m: m.aborted == 1 and m.open_streams == 0)
    log = await program.log(run["id"])
    assert [told.name for told in log] == ["run.started", "text.delta", "run.cancelled"]
    again = await program.start("next", session_id="line")
    assert (await program.over(again["id"]))["output"] == "echo: next"
    assert log == await program.log(run["id"])


async def test_a_run_is_stopped_before_the_first_word(
    program: Program, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(LATE)
    run = await program.start("hello")
    await model.until(lambda m: m.open_streams == 1)
    assert (await program.stop(run["id"]))["status"] == "cancelled"
    await model.until(lambda m: m.open_streams == 0)


async def test_a_run_is_stopped_while_a_tool_works(
    house: House, stage: Stage, hand: HandTool
) -> None:
    api_house = ApiHouse(house)
    await api_house.open(agent={"tools": ["hand"]})
    async with api_house.program() as program:
        stage.then(A_CALL)
        run = await program.start("hello", session_id="line")
        await until(lambda: hand.began)
        assert (await program.stop(run["id"]))["status"] == "cancelled"
        await until(lambda: hand.cancelled == ["a"])
        again = await program.start("next", session_id="line")
        assert (await program.over(again["id"]))["output"] == "echo: hello | next"
        names = [told.name for told in await program.log(run["id"])]
    assert names == ["run.started", "step", "tool.started", "run.cancelled"]
    assert hand.words("ended") == []


async def test_a_run_that_is_over_stays_as_it_ended(program: Program) -> None:
    for text, status in (("hello", "completed"), ("[[status 401]]", "failed")):
        run = await program.start(text)
        done = await program.over(run["id"])
        assert done["status"] == status
        log = await program.log(run["id"])
        assert await program.stop(run["id"]) == done
        assert await program.log(run["id"]) == log


async def test_a_run_is_stopped_once_however_often(program: Program, stage: Stage) -> None:
    stage.then(HANGS)
    run = await program.start("hello")
    await program.until(run["id"], "running")
    stopped = await asyncio.gather(*(program.stop(run["id"]) for _ in range(5)))
    last = await program.stop(run["id"])
    assert {each["status"] for each in stopped} == {"cancelled"}
    assert last["status"] == "cancelled"
    names = [told.name for told in await program.log(run["id"])]
    assert names.count("run.cancelled") == 1
    assert names[-1] == "run.cancelled"


async def test_one_who_follows_sees_the_stop(program: Program, stage: Stage) -> None:
    stage.then(HANGS)
    run = await program.start("hello")
    following = asyncio.create_task(program.log(run["id"]))
    await program.first(run["id"], "text.delta")
    await program.stop(run["id"])
    log = await following
    assert log[-1].name == "run.cancelled"
    assert last_text(log) == "one "
