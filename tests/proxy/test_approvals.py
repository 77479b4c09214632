"""A tool at the far end that needs a person's word asks the person here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parley.agent.tools import TOOLS
from parley.protocol import ApprovalAsked
from tests.gateway.desk import Desk
from tests.gateway.hand_tool import HandTool
from tests.proxy.houses import Pair
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until

CALL = Reply(tool_calls=(("hand", {"word": "a"}),))


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> HandTool:
    made = HandTool()
    made.let_go()
    monkeypatch.setitem(TOOLS, "hand", replace(made.tool, needs_approval=True))
    return made


@pytest.fixture
async def desk(pair: Pair, stage: Stage, hand: HandTool) -> Desk:
    """Where the far agent has just asked."""
    desk = await pair.open(agent={"tools": ["hand"]})
    stage.then(CALL, Reply(text="So be it."))
    await desk.say("do it", event_id="e1")
    await until(lambda: desk.shown(ApprovalAsked))
    return desk


async def test_what_is_allowed_here_runs_there_once(pair: Pair, hand: HandTool, desk: Desk) -> None:
    [asked] = desk.shown(ApprovalAsked)
    assert (asked.call.name, asked.call.arguments) == ("hand", {"word": "a"})
    assert asked.question == 'May I use `hand` with {"word": "a"}?'
    assert hand.began == []
    assert await desk.ask("/approve") == "Allowed: `hand`."
    await until(lambda: desk.answer_to("e1"))
    assert hand.began == ["a"]
    assert pair.far.words()[-1] == "hand did a"
    assert await desk.ask("/approve") == "Nothing waits for your word here."
    assert hand.began == ["a"]


async def test_what_is_refused_here_does_not_run_there(
    pair: Pair, hand: HandTool, desk: Desk
) -> None:
    assert await desk.ask("/deny") == "Refused: `hand`."
    await until(lambda: desk.answer_to("e1"))
    assert hand.began == []
    assert pair.far.words()[-1] == "The person did not allow this."


async def test_another_conversation_cannot_allow_it(pair: Pair, hand: HandTool, desk: Desk) -> None:
    [asked] = desk.shown(ApprovalAsked)
    for words in ("/approve", f"/approve {asked.id}"):
        said = await desk.ask(words, chat="two")
        assert said == "Nothing waits for your word here."
    assert hand.began == []


async def test_a_question_ends_with_its_turn(pair: Pair, hand: HandTool, desk: Desk) -> None:
    assert await desk.ask("/stop") == "Stopped."
    assert await desk.ask("/approve") == "Nothing waits for your word here."
    await desk.ask("on")
    assert hand.began == []


async def test_where_nobody_can_be_asked_it_is_refused(
    pair: Pair, stage: Stage, hand: HandTool
) -> None:
    pair.near.desk_type = Desk
    desk = await pair.open(agent={"tools": ["hand"]})
    stage.then(CALL, Reply(text="So be it."))
    assert await desk.ask("do it") == "So be it."
    assert desk.shown(ApprovalAsked) == []
    assert hand.began == []
    assert pair.far.words()[-1] == "The person did not allow this."
