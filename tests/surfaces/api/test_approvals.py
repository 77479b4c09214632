"""A run or a streamed answer that asks before it acts, and programs that answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from parley.agent.tools import TOOLS, Wanted
from parley.gateway import serving
from tests.agent.shown_text import read_arguments
from tests.gateway.asking_tool import AskingTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.program import ApiHouse, Program, Told

ARGUMENTS = {"word": "a", "times": 3}
A_CALL = Reply(tool_calls=(("deed", ARGUMENTS),))
DONE = Reply(text="It is done.")


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch) -> AskingTool:
    tool = AskingTool()
    monkeypatch.setitem(TOOLS, "deed", tool.tool)
    return tool


@pytest.fixture
async def api_house(house: House, deed: AskingTool) -> ApiHouse:
    made = ApiHouse(house)
    await made.open(agent={"tools": ["deed"]})
    return made


async def asking(program: Program, **more: object) -> tuple[str, Told]:
    """A run that waits for a word, and its question."""
    run = await program.start("please", **more)  # type: ignore[arg-type]
    return run["id"], await program.first(run["id"], "approval.asked")


# ── in a run ──


async def test_what_is_allowed_is_run_once_and_as_it_was_asked(
    program: Program, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, DONE)
    run, question = await asking(program)
    assert question.data["call"]["name"] == "deed"
    assert question.data["call"]["arguments"] == ARGUMENTS
    assert "`deed`" in question.data["question"]
    waiting = await program.run(run)
    assert (waiting["status"], waiting["ended_at"]) == ("waiting_for_approval", None)
    assert deed.done == []

    answer = await program.decide(run, question.data["id"], "approve")
    assert (answer.status, answer.json) == (200, {"id": question.data["id"], "allowed": True})
    assert (await program.over(run))["output"] == "It is done."
    assert deed.done == [ARGUMENTS]
    log = await program.log(run)
    assert [told.name for told in log] == [
        "run.started",
        "step",
        "approval.asked",
        "approval.decided",
        "tool.started",
        "tool.finished",
        "text.delta",
        "run.completed",
    ]
    decided, started = log[3], log[4]
    assert (decided.data["id"], decided.data["decision"]) == (question.data["id"], "approve")
    assert started.data["call_id"] == question.data["call"]["id"]
    assert started.data["arguments"] == question.data["call"]["arguments"]


async def test_what_is_refused_is_not_run_and_the_model_is_told(
    api_house: ApiHouse, program: Program, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, Reply(text="Then not."))
    run, question = await asking(program)
    answer = await program.decide(run, question.data["id"], "deny")
    assert (answer.status, answer.json["allowed"]) == (200, False)
    assert (await program.over(run))["output"] == "Then not."
    assert deed.done == []
    assert api_house.house.words()[-1] == "The person did not allow this."
    names = [told.name for told in await program.log(run)]
    assert "tool.started" not in names
    assert names.index("approval.decided") == names.index("approval.asked") + 1


async def test_what_a_program_is_told_reads_back_to_what_is_done(
    program: Program, stage: Stage, deed: AskingTool
) -> None:
    word = "a\nb\\n\u202e\u200b  `c`⟨"
    stage.then(Reply(tool_calls=(("deed", {"word": word}),)), DONE)
    run, question = await asking(program)
    assert question.data["lasting"] is True
    assert question.data["call"]["arguments"] == {"word": word}
    assert read_arguments(question.data["question"]) == {"word": word}
    await program.decide(run, question.data["id"], "approve")
    await program.over(run)
    assert [each["word"] for each in deed.done] == [word]


async def test_a_yes_for_longer_to_what_is_asked_each_time_holds_once(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = AskingTool(wanted=Wanted("tidy up", once="it depends"))
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    api_house = ApiHouse(house)
    await api_house.open(agent={"tools": ["deed"]})
    async with api_house.program_with("mine") as program:
        for times in (1, 2):
            stage.then(A_CALL, DONE)
            run, question = await asking(program)
            assert question.data["lasting"] is False
            assert question.data["question"].endswith("It is asked each time: it depends.")
            answer = {"approval_id": question.data["id"], "decision": "approve", "scope": "always"}
            said = await program.ask("POST", f"/v1/runs/{run}/approval", answer)
            assert said.status == 200
            await program.over(run)
            assert len(deed.done) == times


@pytest.mark.parametrize(("choice", "allowed"), [("once", True), ("deny", False)])
async def test_a_question_is_answered_in_hermes_words_too(
    program: Program, stage: Stage, deed: AskingTool, choice: str, allowed: bool
) -> None:
    stage.then(A_CALL, DONE)
    run, question = await asking(program)
    answer = await program.ask("POST", f"/v1/runs/{run}/approval", {"choice": choice})
    assert (answer.status, answer.json) == (200, {"id": question.data["id"], "allowed": allowed})
    await program.over(run)
    assert deed.done == ([ARGUMENTS] if allowed else [])
    answer = await program.ask("POST", f"/v1/runs/{run}/approval", {"choice": choice})
    assert (answer.status, answer.code) == (409, "approval_not_waiting")


async def test_many_who_allow_it_at_once_allow_it_once(
    program: Program, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, DONE)
    run, question = await asking(program)
    said = ["approve", "deny"] * 4
    answers = await asyncio.gather(
        *(program.decide(run, question.data["id"], each) for each in said)
    )
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    [taken] = [each for each, answer in zip(said, answers, strict=True) if answer.status == 200]
    await program.over(run)
    assert len(deed.done) == (taken == "approve")
    names = [told.name for told in await program.log(run)]
    assert names.count("approval.decided") == 1


async def test_a_word_for_something_else_is_refused(
    program: Program, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, DONE)
    run, question = await asking(program)
    wrong = await program.decide(run, "appr_wrong", "approve")
    assert (wrong.status, wrong.code) == (409, "approval_not_waiting")
    for body in ({}, {"approval_id": question.data["id"]}, {"decision": "approve"}):
        answer = await program.ask("POST", f"/v1/runs/{run}/approval", body)
        assert answer.status == 400
    maybe = await program.decide(run, question.data["id"], "maybe")
    assert maybe.status == 400
    assert (await program.run(run))["status"] == "waiting_for_approval"
    assert deed.done == []
    assert "approval.decided" not in str(
        [told.name for told in [question, *await _so_far(program, run)]]
    )
    await program.decide(run, question.data["id"], "approve")
    await program.over(run)
    again = await program.decide(run, question.data["id"], "approve")
    assert (again.status, again.code) == (409, "approval_not_waiting")
    assert len(deed.done) == 1


async def _so_far(program: Program, run: str) -> list[Told]:
    shown = await program.run(run)
    told: list[Told] = []
    async with aclosing(program.follow(run)) as events:
        while len(told) < shown["last_event_id"]:
            told.append(await anext(events))
    return told


async def test_a_word_for_one_run_is_none_for_another(
    program: Program, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, A_CALL, DONE, DONE)
    one, first = await asking(program)
    two, second = await asking(program)
    assert (await program.decide(one, second.data["id"], "approve")).status == 409
    assert (await program.decide(two, first.data["id"], "approve")).status == 409
    assert deed.done == []


async def test_only_the_run_that_asks_waits_for_approval(
    program: Program, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, DONE)
    one, question = await asking(program, session_id="line")
    two = (await program.start("next", session_id="line"))["id"]
    assert (await program.run(one))["status"] == "waiting_for_approval"
    assert (await program.run(two))["status"] == "queued"
    assert (await program.decide(two, question.data["id"], "approve")).status == 409
    assert deed.done == []
    await program.decide(one, question.data["id"], "deny")
    assert (await program.over(two))["status"] == "completed"


async def test_a_program_with_another_key_has_no_say(
    api_house: ApiHouse, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, DONE)
    async with api_house.program_with("mine") as mine, api_house.program_with("theirs") as theirs:
        run, question = await asking(mine)
        for decision in ("approve", "deny"):
            assert (await theirs.decide(run, question.data["id"], decision)).status == 404
        assert (await mine.run(run))["status"] == "waiting_for_approval"
        assert deed.done == []
        assert (await mine.decide(run, question.data["id"], "approve")).status == 200
        await mine.over(run)
    assert len(deed.done) == 1


async def test_a_run_is_stopped_while_it_waits(
    program: Program, stage: Stage, deed: AskingTool, model: ScriptedModel
) -> None:
    stage.then(A_CALL)
    run, question = await asking(program, session_id="line")
    assert (await program.stop(run))["status"] == "cancelled"
    late = await program.decide(run, question.data["id"], "approve")
    assert (late.status, late.code) == (409, "approval_not_waiting")
    again = await program.start("next", session_id="line")
    assert (await program.over(again["id"]))["status"] == "completed"
    assert deed.done == []
    names = [told.name for told in await program.log(run)]
    assert names == ["run.started", "step", "approval.asked", "run.cancelled"]


async def test_no_word_is_a_no(
    house: House, stage: Stage, deed: AskingTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_MINUTE", 0.01)
    api_house = ApiHouse(house)
    await api_house.open(agent={"tools": ["deed"]})
    stage.then(A_CALL, Reply(text="Nobody said a word."))
    async with api_house.program_with("mine") as program:
        run, question = await asking(program)
        assert (await program.over(run))["output"] == "Nobody said a word."
        assert deed.done == []
        assert house.words()[-1] == "No answer came in time, so this was not done."
        assert (await program.decide(run, question.data["id"], "approve")).status == 409


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_question_waits_through_a_restart_and_is_answered_once(
    api_house: ApiHouse, program: Program, stage: Stage, deed: AskingTool, decision: str
) -> None:
    stage.then(A_CALL, Reply(text="Well."))
    run, question = await asking(program)
    await api_house.crash()
    await api_house.begin_again()
    await program.until(run, "waiting_for_approval")
    assert deed.done == []
    assert (await program.decide(run, question.data["id"], decision)).status == 200
    assert (await program.decide(run, question.data["id"], "approve")).status == 409
    assert (await program.over(run))["output"] == "Well."
    assert deed.done == ([ARGUMENTS] if decision == "approve" else [])
    told = [told for told in await program.log(run) if told.name == "approval.asked"]
    assert {each.data["id"] for each in told} == {question.data["id"]}


@pytest.mark.parametrize(("scope", "asked"), [("once", True), ("session", False)])
async def test_a_yes_may_reach_further(
    program: Program, stage: Stage, deed: AskingTool, scope: str, asked: bool
) -> None:
    stage.then(A_CALL, DONE)
    run, question = await asking(program, session_id="line")
    said = {"approval_id": question.data["id"], "decision": "approve", "scope": scope}
    assert (await program.ask("POST", f"/v1/runs/{run}/approval", said)).status == 200
    await program.over(run)
    stage.then(A_CALL, DONE)
    again = (await program.start("again", session_id="line"))["id"]
    await program.until(again, "waiting_for_approval" if asked else "completed")
    assert len(deed.done) == (1 if asked else 2)
    stage.clear()
    stage.then(A_CALL, DONE)
    elsewhere = (await program.start("again", session_id="another"))["id"]
    await program.until(elsewhere, "waiting_for_approval")


async def test_always_is_for_programs_of_that_key(
    api_house: ApiHouse, stage: Stage, deed: AskingTool
) -> None:
    async with api_house.program_with("mine") as mine, api_house.program_with("theirs") as theirs:
        stage.then(A_CALL, DONE)
        run, question = await asking(mine)
        said = {"approval_id": question.data["id"], "decision": "approve", "scope": "always"}
        assert (await mine.ask("POST", f"/v1/runs/{run}/approval", said)).status == 200
        await mine.over(run)
        stage.then(A_CALL, DONE)
        assert (await mine.over((await mine.start("again"))["id"]))["output"] == "It is done."
        assert len(deed.done) == 2
        stage.then(A_CALL, DONE)
        await asking(theirs)
    assert len(deed.done) == 2


async def test_a_scope_that_there_is_not_is_refused(
    program: Program, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, DONE)
    run, question = await asking(program)
    said = {"approval_id": question.data["id"], "decision": "approve", "scope": "forever"}
    assert (await program.ask("POST", f"/v1/runs/{run}/approval", said)).status == 400
    assert deed.done == []


async def test_a_program_is_not_asked_by_a_message_too(
    house: House, program: Program, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, DONE)
    run, question = await asking(program)
    await program.decide(run, question.data["id"], "approve")
    await program.over(run)
    assert house.store is not None
    health = await house.store.health()
    assert (health.undelivered, list(health.dead), list(health.unsure)) == (0, [], [])


# ── what only an owner may allow ──


async def test_what_is_owner_level_is_refused_to_a_key_that_is_no_owners(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = AskingTool(wanted=Wanted("move the house", owner=True))
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    api_house = ApiHouse(house)
    await api_house.open(agent={"tools": ["deed"]})
    stage.then(A_CALL, Reply(text="I may not."))
    async with api_house.program_with("mine") as program:
        run = (await program.start("please"))["id"]
        assert (await program.over(run))["output"] == "I may not."
        names = [told.name for told in await program.log(run)]
    assert "approval.asked" not in names
    assert house.words()[-1].startswith("Only an owner of this agent may allow this")
    assert deed.done == []


async def test_a_key_that_the_settings_name_is_an_owners(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = AskingTool(wanted=Wanted("move the house", owner=True))
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    api_house = ApiHouse(house)
    await api_house.open(agent={"tools": ["deed"]})
    async with api_house.program_with("mine") as program:
        stage.then(A_CALL, DONE)
        await program.over((await program.start("please"))["id"])
        owner = (await _lanes(house))[0].split(":")[4].partition("/")[0]
        await house.close()
        await api_house.open(agent={"tools": ["deed"]}, access={"owners": [f"api:{owner}"]})
        stage.then(A_CALL, DONE)
        run, question = await asking(program)
        assert (await program.decide(run, question.data["id"], "approve")).status == 200
        await program.over(run)
    assert deed.done == [ARGUMENTS]


async def _lanes(house: House) -> list[str]:
    assert house.store is not None
    return [session.lane for session in await house.store.sessions()]


# ── in an answer that is streamed ──


async def chunks(
    program: Program, headers: dict[str, str], **more: object
) -> AsyncGenerator[tuple[str, Any], None]:
    """The events of a streamed completion: their names, `data` for those without, and the data."""
    body = {"messages": [{"role": "user", "content": "please"}], "stream": True, **more}
    address = program.url("/v1/chat/completions")
    async with program.client.post(address, json=body, headers=headers) as stream:
        assert stream.status == 200, await stream.text()
        name = "data"
        async for line in stream.content:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, value if value == "[DONE]" else json.loads(value)
                name = "data"


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_stream_of_a_program_that_knows_how_is_asked(
    api_house: ApiHouse, stage: Stage, deed: AskingTool, decision: str
) -> None:
    stage.then(A_CALL, Reply(text="Well."))
    text, told = "", []
    async with (
        api_house.program_with("chats", "chat") as program,
        aclosing(chunks(program, {"X-Parley-Events": "1"})) as stream,
    ):
        id = ""
        async for name, data in stream:
            told.append(name)
            if name == "data" and data != "[DONE]":
                id = data["id"]
                text += "".join(c["delta"].get("content") or "" for c in data["choices"])
            if name == "parley.approval":
                assert data["call"]["arguments"] == ARGUMENTS
                assert deed.done == []
                answer = await program.decide(id, data["id"], decision)
                assert answer.status == 200
    assert text == "Well."
    assert told[-1] == "data"
    assert told.count("parley.approval") == 1
    assert deed.done == ([ARGUMENTS] if decision == "approve" else [])
    assert ("parley.tool" in told) == (decision == "approve")


async def test_only_who_is_asked_in_a_stream_may_answer(
    api_house: ApiHouse, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, Reply(text="Well."))
    async with (
        api_house.program_with("mine", "chat") as mine,
        api_house.program_with("theirs") as theirs,
        aclosing(chunks(mine, {"X-Parley-Events": "1"})) as stream,
    ):
        id = ""
        async for name, data in stream:
            if name == "data" and data != "[DONE]":
                id = data["id"]
            if name == "parley.approval":
                assert (await theirs.decide(id, data["id"], "approve")).status == 404
                assert (await mine.decide(id, "appr_wrong", "approve")).status == 409
                assert deed.done == []
                assert (await mine.decide(id, data["id"], "deny")).status == 200
    assert deed.done == []


async def test_who_leaves_a_stream_that_asks_has_not_said_yes(
    api_house: ApiHouse, program: Program, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL)
    session = {"X-Parley-Events": "1", "X-Parley-Session-Id": "line"}
    asked: tuple[str, str] = ("", "")
    async with aclosing(chunks(program, session)) as stream:
        async for name, data in stream:
            if name == "data":
                asked = (data["id"], "")
            if name == "parley.approval":
                asked = (asked[0], data["id"])
                break
    run = await program.start("next", session_id="line")
    assert (await program.over(run["id"]))["status"] == "completed"
    assert (await program.decide(*asked, "approve")).status in {404, 409}
    assert deed.done == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_program_that_cannot_be_asked_gets_a_refusal_and_not_the_deed(
    api_house: ApiHouse,
    program: Program,
    stage: Stage,
    deed: AskingTool,
    path: str,
    stream: bool,
) -> None:
    stage.then(A_CALL, Reply(text="I may not."))
    said: dict[str, Any] = {"stream": stream}
    said |= (
        {"input": "please"}
        if path == "/v1/responses"
        else {"messages": [{"role": "user", "content": "please"}]}
    )
    async with program.client.post(program.url(path), json=said) as answer:
        text = await answer.text()
    assert answer.status == 200
    assert "I may not." in text
    assert "parley." not in text
    assert deed.done == []
    assert "nobody can be asked here" in api_house.house.words()[-1]


async def test_a_whole_answer_cannot_ask_even_of_who_knows_how(
    api_house: ApiHouse, program: Program, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, Reply(text="I may not."))
    answer = await program.ask(
        "POST",
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "please"}]},
        {"X-Parley-Events": "1"},
    )
    assert answer.json["choices"][0]["message"]["content"] == "I may not."
    assert deed.done == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/runs"])
async def test_a_program_cannot_be_asked_for_more_words(
    house: House, stage: Stage, path: str
) -> None:
    api_house = ApiHouse(house)
    await api_house.open(agent={"tools": ["clarify"]})
    stage.then(Reply(tool_calls=(("clarify", {"question": "Which colour?"}),)), Reply(text="Any."))
    said: dict[str, Any] = {"input": "paint it"}
    if path == "/v1/chat/completions":
        said = {"messages": [{"role": "user", "content": "paint it"}]}
    async with api_house.program_with("mine") as program:
        answer = await program.ask("POST", path, said)
        assert answer.status in (200, 202)
        if path == "/v1/runs":
            await program.over(answer.json["id"])
    assert house.words()[-1].startswith("Nobody can be asked here")
    assert house.store is not None
    assert (await house.store.health()).undelivered == 0
