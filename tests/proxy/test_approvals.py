"""A tool at the far end that needs a person's word asks the person here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parley.agent.question_text import describe_text, render_question
from parley.agent.tools import TOOLS, Wanted
from parley.backends.proxy.approvals import _what
from parley.backends.proxy.stream import ApprovalWanted
from parley.protocol import ApprovalAsked, ToolCall
from tests.gateway.desk import Desk
from tests.gateway.hand_tool import HandTool
from tests.gateway.room import Room, in_thread
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
    assert asked.question == 'May I use `hand` with `{"word": "a"}`?'
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


async def test_a_word_is_bound_to_the_person_here(pair: Pair, stage: Stage, hand: HandTool) -> None:
    pair.near.desk_type = Room
    room = await pair.open(agent={"tools": ["hand"]})
    assert isinstance(room, Room)
    stage.then(CALL, Reply(text="So be it."))
    first = await room.tell("ann", "do it", at=in_thread)
    await room.question()
    said = await room.hear("bob", "!yes", at=in_thread)
    assert said == "That question is for whoever asked, and for owners."
    assert hand.began == []
    assert await room.hear("ann", "!yes", at=in_thread) == "Allowed: `hand`."
    assert await room.reply_to(first) == "So be it."
    assert hand.began == ["a"]


async def test_always_is_for_this_person_and_this_exact_call(
    pair: Pair, stage: Stage, hand: HandTool
) -> None:
    pair.near.desk_type = Room
    room = await pair.open(agent={"tools": ["hand"]})
    assert isinstance(room, Room)
    stage.then(CALL, Reply(text="So be it."))
    first = await room.tell("ann", "do it")
    await room.question()
    await room.hear("ann", "!yes always")
    await room.reply_to(first)
    stage.then(CALL, Reply(text="Again."))
    assert await room.hear("ann", "once more") == "Again."
    assert hand.began == ["a", "a"]
    assert len(room.questions) == 1
    stage.then(Reply(tool_calls=(("hand", {"word": "b"}),)), Reply(text="So be it."))
    await room.tell("ann", "something else")
    await room.question(2)
    stage.clear()
    stage.then(CALL, Reply(text="So be it."))
    await room.tell("bob", "do it")
    await room.question(3)
    assert hand.began == ["a", "a"]


async def test_what_the_far_end_shows_hides_nothing(
    pair: Pair, stage: Stage, hand: HandTool
) -> None:
    desk = await pair.open(agent={"tools": ["hand"]})
    stage.then(Reply(tool_calls=(("hand", {"word": "a\u202eb\x07"}),)), Reply(text="So be it."))
    await desk.say("do it")
    await until(lambda: desk.shown(ApprovalAsked))
    [asked] = desk.shown(ApprovalAsked)
    assert asked.question.isprintable()
    assert r"a\u202eb\u0007" in asked.question


def test_a_far_end_that_says_more_than_it_shows_is_made_visible() -> None:
    wanted = ApprovalWanted("a1", "May I look\u202e?", ToolCall("c1", "hand", {}))
    assert _what(wanted) == "look⟨U+202E⟩"
    other = ApprovalWanted("a1", "Fine?\x1b[2J", ToolCall("c1", "hand", {}))
    assert _what(other) == "let the remote agent use `hand`\n\nIt asks: `Fine?⟨ESC⟩[2J`"


def test_what_the_far_end_marked_is_shown_as_it_marked_it() -> None:
    question = render_question(describe_text("run", "rm a\n\u202e⟨"))
    assert "2 | ⟨U+202E⟩⟨U+27E8⟩" in question
    wanted = ApprovalWanted("a1", question, ToolCall("c1", "terminal", {}))
    assert render_question(_what(wanted)) == question


async def test_what_the_far_end_asks_each_time_is_asked_each_time_here(
    pair: Pair, stage: Stage, hand: HandTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Wanted("lend a hand", once="it depends")
    monkeypatch.setitem(TOOLS, "hand", replace(hand.tool, needs_approval=lambda *_: once))
    pair.near.desk_type = Room
    room = await pair.open(agent={"tools": ["hand"]})
    assert isinstance(room, Room)
    stage.then(CALL, Reply(text="So be it."))
    first = await room.tell("ann", "do it")
    await room.question()
    assert "It is asked each time: it depends." in room.questions[0]
    assert "`!yes always`" not in room.questions[0]
    await room.hear("ann", "!yes always")
    await room.reply_to(first)
    stage.then(CALL, Reply(text="So be it."))
    await room.tell("ann", "once more")
    await room.question(2)
    assert hand.began == ["a"]


@pytest.mark.parametrize("how", ["close", "crash"])
async def test_after_a_restart_here_one_word_is_enough(
    pair: Pair, stage: Stage, hand: HandTool, desk: Desk, how: str
) -> None:
    await (pair.near.close() if how == "close" else pair.near.crash())
    stage.clear()
    stage.then(CALL, Reply(text="So be it."))
    after = await pair.near.open()
    await until(lambda: after.shown(ApprovalAsked))
    assert hand.began == []
    assert await after.ask("!yes") == "Allowed: `hand`."
    await until(lambda: after.answer_to("e1"))
    assert hand.began == ["a"]
    assert await after.ask("!yes") == "Nothing waits for your word here."
