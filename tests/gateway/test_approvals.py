"""Calls that need a person's word: asked where someone can answer, refused where nobody can."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from parley.agent.prompt import UNKNOWN_OUTCOME
from parley.agent.tools import TOOLS, Wanted
from parley.gateway import serving
from parley.protocol import ApprovalAsked, InboundMessage, ToolStarted
from parley.sessions.key import build_session_key
from parley.storage.contract import Draft, Outcome, Settle, StoreError
from parley.storage.hands import Question
from parley.storage.sqlite import SqliteStore
from parley.surfaces.terminal.surface import TerminalSurface
from parley.surfaces.terminal.wire import Deliver, Show
from tests.agent.providers.builders import delta, sse
from tests.gateway.asking_tool import AskingTool
from tests.gateway.desk import Desk, at
from tests.gateway.hand_tool import HandTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.terminal import Line
from tests.waiting import until

A_CALL = Reply(tool_calls=(("deed", {"word": "a", "times": 3}),))
TWO_CALLS = Reply(tool_calls=(("deed", {"word": "a"}), ("deed", {"word": "b"})))
WITH_TOOL = {"tools": ["deed"]}
NOTHING = "Nothing waits for your word here."
DENIED = "The person did not allow this."


class AskingDesk(Desk):
    """A person sits there and can be asked."""

    can_ask = True
    shows_questions = True


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
    assert (told["role"], told["content"]) == ("tool", DENIED)


async def test_each_call_is_asked_for_by_itself(
    house: House, desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    stage.then(TWO_CALLS, Reply(text="Half of it."))
    await desk.say("please", event_id="e1")
    first = await asked(desk)
    assert await desk.ask(f"/deny {first.id}") == "Refused: `deed`."
    second = await asked(desk, 2)
    assert second.id != first.id
    assert await desk.ask(f"/approve {first.id}") == (
        f"No question `{first.id}` waits here; `/yes {second.id}` answers this one."
    )
    assert await desk.ask(f"/approve {second.id}") == "Allowed: `deed`."
    await until(lambda: desk.answer_to("e1"))
    assert [deed["word"] for deed in deed.done] == ["b"]
    roles = [message["content"] for message in house.asked() if message["role"] == "tool"]
    assert roles == [DENIED, "did b"]


async def test_two_calls_of_one_id_are_asked_for_and_answered_each_by_itself(
    desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    twins = [
        {"index": n, "id": "call_0", "function": {"name": "deed", "arguments": '{"word": "a"}'}}
        for n in range(2)
    ]
    stage.then(sse(delta(tool_calls=twins), delta(finish="tool_calls"), "[DONE]"), Reply(text="."))
    await desk.say("please", event_id="e1")
    first = await asked(desk)
    assert await desk.ask(f"/approve {first.id}") == "Allowed: `deed`."
    second = await asked(desk, 2)
    assert len(deed.done) == 1
    assert await desk.ask(f"/deny {second.id}") == "Refused: `deed`."
    await until(lambda: desk.answer_to("e1"))
    assert len(deed.done) == 1


@pytest.mark.parametrize("said", ["/approve", "/approve {id}", "/deny", "/deny {id}"])
async def test_another_conversation_has_no_say(
    desk: Desk, stage: Stage, deed: AskingTool, said: str
) -> None:
    stage.then(A_CALL)
    await desk.say("please", event_id="e1")
    question = await asked(desk)
    reply = await desk.ask(said.format(id=question.id), chat="two")
    assert reply == NOTHING
    assert deed.done == []
    assert await desk.ask("/approve") == "Allowed: `deed`."
    await until(lambda: len(deed.done) == 1)


async def test_a_wrong_name_answers_nothing(desk: Desk, stage: Stage, deed: AskingTool) -> None:
    stage.then(A_CALL)
    await desk.say("please")
    await asked(desk)
    assert "No question `appr_wrong` waits here" in await desk.ask("/approve appr_wrong")
    assert deed.done == []


async def test_where_nothing_is_asked_there_is_nothing_to_allow(desk: Desk) -> None:
    assert await desk.ask("/approve") == NOTHING
    assert await desk.ask("/deny") == NOTHING


async def test_a_second_word_comes_too_late(desk: Desk, stage: Stage, deed: AskingTool) -> None:
    stage.then(A_CALL)
    await desk.say("please", event_id="e1")
    question = await asked(desk)
    await desk.ask(f"/deny {question.id}")
    assert await desk.ask(f"/approve {question.id}") == NOTHING
    await until(lambda: desk.answer_to("e1"))
    assert deed.done == []


async def test_a_stop_ends_the_question(desk: Desk, stage: Stage, deed: AskingTool) -> None:
    stage.then(A_CALL)
    await desk.say("please")
    question = await asked(desk)
    assert await desk.ask("/stop") == "Stopped."
    await desk.ask("something else")
    assert await desk.ask(f"/approve {question.id}") == NOTHING
    assert deed.done == []


async def test_no_word_is_a_no(
    house: House, stage: Stage, deed: AskingTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_MINUTE", 0.01)
    house.desk_type = AskingDesk
    desk = await house.open(agent=WITH_TOOL)
    stage.then(A_CALL, Reply(text="Nobody said a word."))
    assert await desk.ask("please") == "Nobody said a word."
    assert deed.done == []
    assert house.words()[-1] == "No answer came in time, so this was not done."
    question = await asked(desk)
    assert await desk.ask(f"/approve {question.id}") == NOTHING
    assert await state_of(house, question) == "expired"


async def test_where_nobody_can_be_asked_the_call_is_refused(
    house: House, stage: Stage, deed: AskingTool
) -> None:
    desk = await house.open(agent=WITH_TOOL)
    stage.then(A_CALL, Reply(text="I may not."))
    assert await desk.ask("please") == "I may not."
    assert deed.done == []
    assert desk.shown(ApprovalAsked) == []
    assert "nobody can be asked here" in house.words()[-1]


# ── through a restart ──


@pytest.fixture(params=["close", "crash"])
def how(request: pytest.FixtureRequest) -> str:
    """How the first gateway ends."""
    return str(request.param)


async def end(house: House, how: str) -> None:
    await (house.close() if how == "close" else house.crash())


@pytest.mark.parametrize("safe_to_repeat", [False, True])
async def test_a_question_is_the_same_after_a_restart(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str, safe_to_repeat: bool
) -> None:
    deed = AskingTool(safe_to_repeat=safe_to_repeat)
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    house.desk_type = AskingDesk
    before = await house.open(agent=WITH_TOOL)
    stage.then(A_CALL, Reply(text="It is done."))
    await before.say("please", event_id="e1")
    first = await asked(before)
    await end(house, how)
    after = await house.open(agent=WITH_TOOL)
    assert await asked(after) == first
    assert await after.ask(f"/approve {first.id}") == "Allowed: `deed`."
    await until(lambda: after.answer_to("e1"))
    assert deed.done == [{"word": "a", "times": 3}]
    assert await after.ask(f"/approve {first.id}") == NOTHING
    assert house.words()[-1] == "did a"


@pytest.mark.parametrize(("word", "told"), [("/approve", "did a"), ("/deny", DENIED)])
async def test_a_word_that_comes_before_the_turn_is_resumed_counts(
    house: House, desk: Desk, stage: Stage, deed: AskingTool, how: str, word: str, told: str
) -> None:
    stage.then(A_CALL, Reply(text="Well."))
    await desk.say("please", event_id="e1")
    question = await asked(desk)
    await end(house, how)
    store = SqliteStore.open(house.profile.database_file)
    await store.settle_question(question.id, "allowed" if told == "did a" else "denied")
    await store.close()
    after = await house.open(agent=WITH_TOOL)
    await until(lambda: after.answer_to("e1"))
    assert after.shown(ApprovalAsked) == []
    assert house.words()[-1] == told
    assert len(deed.done) == (told == "did a")


async def test_a_command_that_was_accepted_before_the_restart_counts_once(
    house: House, desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    stage.then(TWO_CALLS, Reply(text="Well."))
    await desk.say("please", event_id="e1")
    await asked(desk)
    await house.crash()
    lane = build_session_key(at("one"))
    store = SqliteStore.open(house.profile.database_file)
    said = InboundMessage(at("one"), "!yes", "e2")
    await store.submit(lane, "desk::e2", said, kind="command")
    await store.close()
    after = await house.open(agent=WITH_TOOL)
    await until(lambda: after.answer_to("e2"))
    await until(lambda: len(deed.done) == 1)
    second = await asked(after)
    assert second.call.arguments == {"word": "b"}
    assert [each["word"] for each in deed.done] == ["a"]
    assert after.texts() == ["Allowed: `deed`."]


async def test_a_word_and_its_answer_are_stored_together(
    house: House, desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    """A gateway that ends between the two would give the same word again, to another question."""
    stage.then(A_CALL, Reply(text="Well."))
    await desk.say("please")
    question = await asked(desk)
    assert house.store is not None
    lane, seen = build_session_key(at("one")), []

    def see(outcome: Outcome) -> Draft:
        seen.append(outcome.refused)
        raise StoreError("The disk is full.")

    said = InboundMessage(at("one"), "!yes", "e2")
    receipt = await house.store.submit(lane, "desk::e2", said, kind="command")
    settle = Settle(question.id, "allowed", "desk:ann", "always")
    with pytest.raises(StoreError):
        await house.store.answer(lane, receipt.inbox_id, settle, see)
    assert seen == [False]
    assert await state_of(house, question) == "waiting"
    assert await house.store.grants("desk:ann") == []


async def test_a_call_that_was_allowed_and_may_have_begun_is_not_made_again(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandTool("deed")
    monkeypatch.setitem(TOOLS, "deed", replace(hand.tool, needs_approval=True))
    house.desk_type = AskingDesk
    before = await house.open(agent=WITH_TOOL)
    stage.then(Reply(tool_calls=(("deed", {"word": "a"}),)), Reply(text="I do not know."))
    await before.say("please", event_id="e1")
    await asked(before)
    await before.ask("!yes")
    await until(lambda: hand.began == ["a"])
    await house.crash()
    after = await house.open(agent=WITH_TOOL)
    await until(lambda: after.answer_to("e1"))
    assert hand.began == ["a"]
    assert after.shown(ApprovalAsked) == []
    assert house.words()[-1] == UNKNOWN_OUTCOME


async def test_what_nobody_answered_while_the_gateway_was_away_was_not_done(
    house: House, stage: Stage, deed: AskingTool, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(serving, "_MINUTE", 0.15)
    house.desk_type = AskingDesk
    before = await house.open(agent=WITH_TOOL)
    stage.then(A_CALL, Reply(text="Nobody said a word."))
    await before.say("please", event_id="e1")
    question = await asked(before)
    await end(house, how)
    [row] = await rows_of(house, question)
    await asyncio.sleep(max(0.0, row.expires_at - time.time()))
    after = await house.open(agent=WITH_TOOL)
    await until(lambda: after.answer_to("e1"))
    assert deed.done == []
    assert house.words()[-1] == "No answer came in time, so this was not done."


async def test_a_call_that_would_do_more_by_now_is_not_what_was_allowed(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    deed = AskingTool(wanted=Wanted("tidy up"))
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    house.desk_type = AskingDesk
    before = await house.open(agent=WITH_TOOL)
    stage.then(A_CALL, Reply(text="Then not."))
    await before.say("please", event_id="e1")
    question = await asked(before)
    await end(house, how)
    deed = AskingTool(wanted=Wanted("tidy up (without a sandbox)"))
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    after = await house.open(agent=WITH_TOOL)
    await until(lambda: after.answer_to("e1"))
    assert await after.ask(f"/approve {question.id}") == NOTHING
    assert deed.done == []
    assert "not what was asked about any more" in house.words()[-1]


@pytest.mark.parametrize("word", ["/stop", "/new", "/undo"])
async def test_a_question_of_a_stopped_turn_is_gone_for_good(
    house: House, desk: Desk, stage: Stage, deed: AskingTool, word: str, how: str
) -> None:
    stage.then(A_CALL)
    await desk.say("please")
    question = await asked(desk)
    await desk.ask(word)
    assert await desk.ask("!yes") == NOTHING
    await end(house, how)
    after = await house.open(agent=WITH_TOOL)
    assert await after.ask("!yes always") == NOTHING
    assert await after.ask(f"/approve {question.id}") == NOTHING
    assert await state_of(house, question) == "gone"
    assert (deed.done, after.shown(ApprovalAsked)) == ([], [])


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
        name = question.rpartition("; `")[2].partition("`")[0]
        assert await other.ask(f"/approve {name}", "2") == NOTHING
        assert [show for show in other.all_of(Show) if show.event == "asks"] == []
        assert deed.done == []
        assert await mine.ask(f"/approve {name}", "3") == "Allowed: `deed`."
        await until(lambda: mine.answer_to("1"))
        said = [frame.text for frame in mine.all_of(Deliver)]
        assert said == ["Allowed: `deed`.", "It is done."]
    assert len(deed.done) == 1


# ── the questions themselves ──


async def rows_of(house: House, question: ApprovalAsked) -> list[Question]:
    """The question as it is stored, by a store of its own."""
    store = SqliteStore.open(house.profile.database_file)
    found = await store.question(question.id)
    await store.close()
    return [found] if found is not None else []


async def state_of(house: House, question: ApprovalAsked) -> str:
    [row] = await rows_of(house, question)
    return row.state
