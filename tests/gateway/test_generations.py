"""After a stop nothing of the old turn is shown, stored or delivered, and its work really ends."""

from __future__ import annotations

import pytest

from parley.agent.tools import TOOLS
from parley.gateway.live import TurnEnded
from parley.protocol import TextDelta
from tests.gateway.hand_tool import HandTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until

HANGS = Reply(text="one two three four", chunks=4, chunk_delay=30)
FLOWS = Reply(text="old words " * 100, chunks=100, chunk_delay=0.005)


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> HandTool:
    hand = HandTool()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    return hand


@pytest.mark.parametrize(
    ("command", "answer"), [("/stop", "Stopped."), ("/new", "A new conversation.")]
)
async def test_a_stopped_turn_says_nothing_more(
    house: House, stage: Stage, model: ScriptedModel, command: str, answer: str
) -> None:
    desk = await house.open()
    stage.then(FLOWS)
    await desk.say("first", event_id="e1")
    await until(desk.streamed)
    assert (await desk.ask(command)).startswith(answer)
    await model.until(lambda m: m.aborted == 1)
    await desk.ask("next")
    await until(lambda: len(desk.shown(TurnEnded)) == 2)
    assert desk.answer_to("e1") is None
    end = next(n for n, e in enumerate(desk.live) if e.event == TurnEnded(stopped=True))
    assert not [e for e in desk.live[end + 1 :] if e.turn == 1]
    assert [d.turn for d in desk.sent] == [None, 2]


async def test_what_was_said_before_a_stop_stays_in_the_transcript(
    house: House, stage: Stage
) -> None:
    desk = await house.open()
    stage.then(HANGS)
    await desk.say("first")
    await until(desk.streamed)
    await desk.ask("/stop")
    user, cut = await house.transcript()
    assert (user.text, cut.note) == ("first", "interrupted")
    assert cut.text == desk.streamed()


async def test_a_stop_before_the_first_word_leaves_the_question_only(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    desk = await house.open()
    stage.then(Reply(text="late", delay=30))
    await desk.say("first")
    await model.until(lambda m: m.open_streams == 1)
    assert await desk.ask("/stop") == "Stopped."
    await model.until(lambda m: m.aborted == 1)
    assert await house.said() == [("user", "first")]


async def test_a_stop_during_a_tool_call_cancels_the_tool(
    house: House, stage: Stage, hand: HandTool
) -> None:
    desk = await house.open(agent={"tools": ["hand"]})
    stage.then(Reply(tool_calls=(("hand", {"word": "a"}),)))
    await desk.say("first")
    await until(lambda: hand.began)
    assert await desk.ask("/stop") == "Stopped."
    await until(lambda: hand.cancelled == ["a"])
    hand.let_go()
    assert await desk.ask("next")
    assert hand.words("ended") == []
    assert [m.role for m in await house.transcript()] == ["user", "assistant", "user", "assistant"]


async def test_a_stop_while_a_result_is_journalled_cancels_the_tool_beside_it(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, slow = HandTool("quick", parallel=True), HandTool("slow", parallel=True)
    monkeypatch.setitem(TOOLS, "quick", quick.tool)
    monkeypatch.setitem(TOOLS, "slow", slow.tool)
    desk = await house.open(agent={"tools": ["quick", "slow"]})
    stage.then(Reply(tool_calls=(("quick", {"word": "a"}), ("slow", {"word": "b"}))))
    await desk.say("first")
    await until(lambda: slow.began)
    quick.let_go()
    await desk.ask("/stop")
    await until(lambda: slow.cancelled == ["b"])


async def test_stop_with_nothing_to_stop_says_so(house: House) -> None:
    desk = await house.open()
    assert await desk.ask("/stop") == "Nothing is running."
    await desk.ask("hello")
    assert await desk.ask("/stop") == "Nothing is running."


async def test_stop_lets_the_next_waiting_message_go(house: House, stage: Stage) -> None:
    desk = await house.open(gateway={"busy": "queue"})
    stage.then(HANGS)
    await desk.say("first")
    await until(desk.streamed)
    await desk.say("second", event_id="e2")
    await desk.ask("/stop")
    await until(lambda: desk.answer_to("e2"))
    assert house.words()[-1] == "second"


async def test_stop_all_drops_what_waits(house: House, stage: Stage, model: ScriptedModel) -> None:
    desk = await house.open(gateway={"busy": "queue"})
    stage.then(HANGS)
    await desk.say("first")
    await until(desk.streamed)
    await desk.say("second")
    await desk.say("third")
    assert await desk.ask("/stop all") == "Stopped. 2 waiting message(s) dropped."
    assert await desk.ask("fourth") == "echo: fourth"
    assert model.total == 2
    assert [t for r, t in await house.said() if r == "user"] == ["first", "fourth"]


async def test_a_stop_in_one_conversation_leaves_another_running(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    desk = await house.open()
    await desk.say("[[delay 0.3]] slow", chat="two")
    await model.until(lambda m: m.open_streams == 1)
    stage.then(HANGS)
    await desk.say("first")
    await until(desk.streamed)
    await desk.ask("/stop")
    await until(lambda: desk.texts("two"))
    assert desk.texts("two") == ["echo: [[delay 0.3]] slow"]


async def test_many_stops_and_messages_leave_a_conversation_that_answers(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    desk = await house.open()
    for number in range(15):
        stage.then(FLOWS)
        await desk.say(f"question {number}")
        if number % 3:
            await until(lambda: model.open_streams == 1)
        await desk.ask("/stop")
    stage.clear()
    assert await desk.ask("still there?")
    assert [t for r, t in await house.said() if r == "user"][-1] == "still there?"
    await model.until(lambda m: m.open_streams == 0)
    stale = {f"event-{n}" for n in range(15)} & {a for d in desk.sent for a in d.answers}
    assert all(d.kind == "notice" for d in desk.sent[:-1]), stale
    assert not [e for e in desk.live[-1:] if isinstance(e.event, TextDelta)]
