"""Calls that need a person's word: asked where someone can answer, refused where nobody can."""

from __future__ import annotations

import pytest

from parley.agent.tools import TOOLS
from parley.gateway import approvals
from parley.gateway.approvals import Approvals
from parley.protocol import ApprovalAsked, ToolCall, ToolStarted
from parley.surfaces.terminal.surface import TerminalSurface
from parley.surfaces.terminal.wire import Show
from tests.gateway.asking_tool import AskingTool
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.terminal import Line
from tests.waiting import until

A_CALL = Reply(tool_calls=(("deed", {"word": "a", "times": 3}),))
TWO_CALLS = Reply(tool_calls=(("deed", {"word": "a"}), ("deed", {"word": "b"})))
WITH_TOOL = {"tools": ["deed"]}


class AskingDesk(Desk):
    """A person sits there and can be asked."""

    can_ask = True


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch) -> AskingTool:
    tool = AskingTool()
    monkeypatch.setitem(TOOLS, "deed", tool.tool)
    return tool


@pytest.fixture
async def desk(house: House, deed: AskingTool) -> Desk:
    house.desk_type = AskingDesk
    return await house.open(agent=WITH_TOOL)


async def asked(desk: Desk, count: int = 1) -> ApprovalAsked:
    """The newest question, once there are so many."""
    await until(lambda: len(desk.shown(ApprovalAsked)) == count)
    return desk.shown(ApprovalAsked)[-1]


# ── at a desk ──


@pytest.mark.parametrize("named", [False, True])
async def test_what_a_person_allows_is_run_once_and_as_it_was_asked(
    desk: Desk, stage: Stage, deed: AskingTool, named: bool
) -> None:
    stage.then(A_CALL, Reply(text="It is done."))
    await desk.say("please", event_id="e1")
    question = await asked(desk)
    assert question.call.arguments == {"word": "a", "times": 3}
    assert "`deed`" in question.question
    assert '"word": "a"' in question.question
    assert '"times": 3' in question.question
    assert (deed.done, desk.shown(ToolStarted)) == ([], [])
    said = f"/approve {question.id}" if named else "/approve"
    assert await desk.ask(said) == "Allowed: `deed`."
    await until(lambda: desk.answer_to("e1"))
    assert desk.texts()[-1] == "It is done."
    assert deed.done == [dict(question.call.arguments)]
    assert [started.call for started in desk.shown(ToolStarted)] == [question.call]


@pytest.mark.parametrize("named", [False, True])
async def test_what_a_person_refuses_is_not_run_and_the_model_is_told(
    house: House, desk: Desk, stage: Stage, deed: AskingTool, named: bool
) -> None:
    stage.then(A_CALL, Reply(text="Then not."))
    await desk.say("please", event_id="e1")
    question = await asked(desk)
    assert await desk.ask(f"/deny {question.id}" if named else "/deny") == "Refused: `deed`."
    await until(lambda: desk.answer_to("e1"))
    assert deed.done == []
    told = house.asked()[-1]
    assert (told["role"], told["content"]) == ("tool", "The person did not allow this.")


async def test_each_call_is_asked_for_by_itself(
    house: House, desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    stage.then(TWO_CALLS, Reply(text="Half of it."))
    await desk.say("please", event_id="e1")
    first = await asked(desk)
    assert await desk.ask(f"/deny {first.id}") == "Refused: `deed`."
    second = await asked(desk, 2)
    assert second.id != first.id
    assert await desk.ask(f"/approve {first.id}") == "Nothing waits for your word here."
    assert await desk.ask(f"/approve {second.id}") == "Allowed: `deed`."
    await until(lambda: desk.answer_to("e1"))
    assert [deed["word"] for deed in deed.done] == ["b"]
    roles = [message["content"] for message in house.asked() if message["role"] == "tool"]
    assert roles == ["The person did not allow this.", "did b"]


@pytest.mark.parametrize("said", ["/approve", "/approve {id}", "/deny", "/deny {id}"])
async def test_another_conversation_has_no_say(
    desk: Desk, stage: Stage, deed: AskingTool, said: str
) -> None:
    stage.then(A_CALL)
    await desk.say("please", event_id="e1")
    question = await asked(desk)
    reply = await desk.ask(said.format(id=question.id), chat="two")
    assert reply == "Nothing waits for your word here."
    assert deed.done == []
    assert await desk.ask("/approve") == "Allowed: `deed`."
    await until(lambda: len(deed.done) == 1)


async def test_a_wrong_name_answers_nothing(desk: Desk, stage: Stage, deed: AskingTool) -> None:
    stage.then(A_CALL)
    await desk.say("please")
    await asked(desk)
    assert await desk.ask("/approve appr_wrong") == "Nothing waits for your word here."
    assert deed.done == []


async def test_where_nothing_is_asked_there_is_nothing_to_allow(desk: Desk) -> None:
    assert await desk.ask("/approve") == "Nothing waits for your word here."
    assert await desk.ask("/deny") == "Nothing waits for your word here."


async def test_a_second_word_comes_too_late(desk: Desk, stage: Stage, deed: AskingTool) -> None:
    stage.then(A_CALL)
    await desk.say("please", event_id="e1")
    question = await asked(desk)
    await desk.ask(f"/deny {question.id}")
    assert await desk.ask(f"/approve {question.id}") == "Nothing waits for your word here."
    await until(lambda: desk.answer_to("e1"))
    assert deed.done == []


async def test_a_stop_ends_the_question(desk: Desk, stage: Stage, deed: AskingTool) -> None:
    stage.then(A_CALL)
    await desk.say("please")
    question = await asked(desk)
    assert await desk.ask("/stop") == "Stopped."
    await desk.ask("something else")
    assert await desk.ask(f"/approve {question.id}") == "Nothing waits for your word here."
    assert deed.done == []


async def test_no_word_is_a_no(
    house: House,
    desk: Desk,
    stage: Stage,
    deed: AskingTool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(approvals, "_PATIENCE", 0.05)
    stage.then(A_CALL, Reply(text="Nobody said a word."))
    assert await desk.ask("please") == "Nobody said a word."
    assert deed.done == []
    assert house.words()[-1] == "The person did not allow this."
    question = await asked(desk)
    assert await desk.ask(f"/approve {question.id}") == "Nothing waits for your word here."


async def test_where_nobody_can_be_asked_the_call_is_refused(
    house: House, stage: Stage, deed: AskingTool
) -> None:
    desk = await house.open(agent=WITH_TOOL)
    stage.then(A_CALL, Reply(text="I may not."))
    assert await desk.ask("please") == "I may not."
    assert deed.done == []
    assert desk.shown(ApprovalAsked) == []
    assert "nobody can be asked here" in house.words()[-1]


@pytest.mark.parametrize("how", ["close", "crash"])
async def test_a_question_that_a_restart_cut_off_is_never_taken_for_a_yes(
    house: House, desk: Desk, stage: Stage, deed: AskingTool, how: str
) -> None:
    stage.then(A_CALL, Reply(text="I was interrupted."))
    await desk.say("please", event_id="e1")
    before = await asked(desk)
    await (house.close() if how == "close" else house.crash())
    after = await house.open(agent=WITH_TOOL)
    assert await after.ask(f"/approve {before.id}") == "Nothing waits for your word here."
    await until(lambda: after.answer_to("e1"))
    assert deed.done == []


async def test_a_question_about_what_may_be_repeated_is_asked_again_after_a_restart(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = AskingTool(safe_to_repeat=True)
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    house.desk_type = AskingDesk
    before = await house.open(agent=WITH_TOOL)
    stage.then(A_CALL, Reply(text="It is done."))
    await before.say("please", event_id="e1")
    first = await asked(before)
    await house.crash()
    after = await house.open(agent=WITH_TOOL)
    again = await asked(after)
    assert again.call == first.call
    assert again.id != first.id
    assert await after.ask(f"/approve {first.id}") == "Nothing waits for your word here."
    assert await after.ask(f"/approve {again.id}") == "Allowed: `deed`."
    await until(lambda: after.answer_to("e1"))
    assert len(deed.done) == 1


# ── at a terminal ──


async def test_a_terminal_is_asked_and_answers(
    house: House, stage: Stage, deed: AskingTool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    socket = tmp_path_factory.mktemp("t") / "s"
    house.more_surfaces = [TerminalSurface(socket)]
    await house.open(agent=WITH_TOOL)
    stage.then(A_CALL, Reply(text="It is done."))
    async with Line(socket) as mine, Line(socket) as other:
        await mine.hello("mine")
        await other.hello("other")
        await mine.say("please", "1")
        await until(lambda: [show for show in mine.all_of(Show) if show.event == "asks"])
        [question] = [show.text for show in mine.all_of(Show) if show.event == "asks"]
        assert "May I use `deed`" in question
        name = question.partition("/approve ")[2].partition("`")[0]
        assert await other.ask(f"/approve {name}", "2") == "Nothing waits for your word here."
        assert [show for show in other.all_of(Show) if show.event == "asks"] == []
        assert deed.done == []
        assert await mine.ask(f"/approve {name}", "3") == "Allowed: `deed`."
        await until(lambda: mine.answer_to("1"))
    assert len(deed.done) == 1


# ── the questions themselves ──


async def test_a_question_is_answered_once() -> None:
    open_here = Approvals()
    pending = open_here.ask("lane", 1, ToolCall("c", "deed", {}), "May I?")
    assert open_here.waiting("lane") == (pending.event,)
    assert open_here.decide("other", allowed=True, approval=pending.event.id) is None
    assert open_here.decide("lane", allowed=False) is pending
    assert open_here.decide("lane", allowed=True, approval=pending.event.id) is None
    assert not pending.answer(allowed=True)
    assert await pending.decided() is False
    assert open_here.waiting("lane") == ()


async def test_the_oldest_question_is_meant_when_none_is_named() -> None:
    open_here = Approvals()
    call = ToolCall("c", "deed", {})
    first, second = (open_here.ask("lane", 1, call, "May I?") for _ in range(2))
    assert open_here.decide("lane", allowed=True) is first
    assert open_here.decide("lane", allowed=True) is second
    assert open_here.decide("lane", allowed=True) is None
