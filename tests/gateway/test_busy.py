"""Messages that arrive while their conversation is being answered."""

from __future__ import annotations

import asyncio
import random

import pytest

from parley.agent.tools import TOOLS
from parley.gateway.live import TurnEnded
from parley.protocol import InboundMessage, SessionSource, TextDelta
from parley.storage.contract import TurnEnd
from tests.gateway.hand_tool import HandTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until

TOOL_CALL = Reply(tool_calls=(("hand", {"word": "a"}),))
HANGS = Reply(text="one two three four", chunks=4, chunk_delay=30)


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> HandTool:
    hand = HandTool()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    return hand


# ── queue ──


async def test_queued_messages_get_a_reply_each_in_order(house: House) -> None:
    desk = await house.open(gateway={"busy": "queue"})
    await desk.say("[[delay 0.1]] zero")
    for word in ("one", "two", "three"):
        await desk.say(word)
    await until(lambda: len(desk.sent) == 4)
    assert desk.texts() == ["echo: [[delay 0.1]] zero", "echo: one", "echo: two", "echo: three"]
    assert [role for role, _ in await house.said()] == ["user", "assistant"] * 4


async def test_a_queue_is_never_steered_into_a_running_turn(
    house: House, stage: Stage, hand: HandTool
) -> None:
    desk = await house.open(gateway={"busy": "queue"}, agent={"tools": ["hand"]})
    stage.then(TOOL_CALL)
    await desk.say("first")
    await until(lambda: hand.began)
    await desk.say("second")
    hand.let_go()
    await until(lambda: len(desk.sent) == 2)
    assert "second" not in house.words(1)
    assert desk.texts() == ["echo: first", "echo: second"]


# ── steer ──


async def test_a_message_during_a_tool_call_reaches_the_next_step(
    house: House, stage: Stage, hand: HandTool, model: ScriptedModel
) -> None:
    desk = await house.open(agent={"tools": ["hand"]})
    stage.then(TOOL_CALL)
    await desk.say("first", event_id="e1")
    await until(lambda: hand.began)
    await desk.say("also this", event_id="e2")
    await desk.say("and that", event_id="e3")
    hand.let_go()
    await until(lambda: desk.sent)
    [reply] = desk.sent
    assert reply.answers == ("e1", "e2", "e3")
    assert model.total == 2
    roles = [message["role"] for message in house.asked()]
    assert roles == ["user", "assistant", "tool", "user", "user"]
    assert house.words()[-2:] == ["also this", "and that"]
    assert [role for role, _ in await house.said()] == [*roles, "assistant"]
    assert await desk.ask("next") == "echo: next"


async def test_a_message_during_the_last_model_call_becomes_the_next_turn(house: House) -> None:
    desk = await house.open()
    await desk.say("[[chunks 2]] [[pace 0.2]] first", event_id="e1")
    await until(desk.streamed)
    await desk.say("second", event_id="e2")
    await until(lambda: len(desk.sent) == 2)
    assert [reply.answers for reply in desk.sent] == [("e1",), ("e2",)]
    assert desk.texts()[1] == "echo: second"
    assert "second" not in house.words(0)


# ── interrupt ──


async def test_an_interrupting_message_stops_the_answer_and_sees_both(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    desk = await house.open(gateway={"busy": "interrupt"})
    stage.then(HANGS)
    await desk.say("first", event_id="e1")
    await until(desk.streamed)
    cut = desk.streamed()
    await desk.say("no, this", event_id="e2")
    await until(lambda: desk.sent)
    await model.until(lambda m: m.aborted == 1)
    assert model.open_streams == 0
    [reply] = desk.sent
    assert reply.answers == ("e2",)
    first, interrupted, second = house.words()
    assert (first, second) == ("first", "no, this")
    assert interrupted.startswith(cut)
    assert "stopped" in interrupted
    notes = [(m.role, m.note) for m in await house.transcript()]
    assert notes[:2] == [("user", None), ("assistant", "interrupted")]
    assert notes[2:] == [("user", None), ("assistant", None)]


async def test_an_interrupt_cancels_a_tool(house: House, stage: Stage, hand: HandTool) -> None:
    desk = await house.open(gateway={"busy": "interrupt"}, agent={"tools": ["hand"]})
    stage.then(TOOL_CALL)
    await desk.say("first")
    await until(lambda: hand.began)
    assert await desk.ask("second")
    assert hand.cancelled == ["a"]
    roles = [message["role"] for message in house.asked()]
    assert roles == ["user", "assistant", "tool", "user"]
    assert "unknown" in house.words()[2]


async def test_a_message_to_a_quiet_conversation_interrupts_nothing(house: House) -> None:
    desk = await house.open(gateway={"busy": "interrupt"})
    for word in ("one", "two", "three"):
        assert await desk.ask(word) == f"echo: {word}"


async def test_an_interrupt_leaves_other_conversations_alone(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    desk = await house.open(gateway={"busy": "interrupt"})
    await desk.say("[[delay 0.3]] slow", chat="two")
    await until(lambda: model.open_streams == 1)
    stage.then(HANGS)
    await desk.say("first")
    await until(desk.streamed)
    await desk.ask("second")
    await until(lambda: desk.texts("two"))
    assert desk.texts("two") == ["echo: [[delay 0.3]] slow"]
    assert model.aborted == 1


async def test_a_turn_that_ended_just_now_is_not_stopped_in_the_name_of_another(
    house: House,
) -> None:
    await house.open()
    store, lane = house.store, "agent:main:nowhere:dm:one"
    assert store is not None
    await store.submit(lane, "a", InboundMessage(SessionSource("nowhere"), "first", "a"))
    [first] = await store.claim("me", 1, ["nowhere"])
    await store.submit(lane, "b", InboundMessage(SessionSource("nowhere"), "second", "b"))
    await store.commit(first, TurnEnd("done"))
    [second] = await store.claim("me", 1, ["nowhere"])
    assert (await store.stop(lane, turn=first.turn)).turn is None
    await store.check(second)
    assert (await store.stop(lane, turn=second.turn)).turn == second.turn


@pytest.mark.parametrize("policy", ["steer", "queue", "interrupt"])
async def test_nothing_a_person_wrote_is_lost_whatever_the_moment(
    house: House, policy: str
) -> None:
    """Messages at random moments around the ends of turns: all stay, and the last is answered."""
    desk = await house.open(gateway={"busy": policy})
    chance = random.Random(7)
    expected: dict[str, list[str]] = {}

    async def talk(chat: str) -> None:
        words = expected.setdefault(chat, [])
        for number in range(12):
            words.append(f"[[chunks 3]] [[pace 0.003]] {chat} {number}")
            await desk.say(words[-1], chat=chat, event_id=f"{chat}/{number}")
            await asyncio.sleep(chance.uniform(0, 0.03))
        await until(lambda: desk.answer_to(f"{chat}/11"))

    await asyncio.gather(*(talk(f"chat{n}") for n in range(12)))
    for chat, words in expected.items():
        said = await house.said(chat)
        assert [text for role, text in said if role == "user"] == words
        answers = [number for reply in desk.sent for number in reply.answers]
        assert len(answers) == len(set(answers))
        if policy != "interrupt":
            wanted = {f"{chat}/{number}" for number in range(12)}
            assert wanted <= set(answers)


async def test_after_an_interrupt_nothing_more_of_the_old_turn_is_shown(
    house: House, stage: Stage
) -> None:
    desk = await house.open(gateway={"busy": "interrupt"})
    stage.then(Reply(text="old words " * 50, chunks=50, chunk_delay=0.005))
    await desk.say("first")
    await until(desk.streamed)
    await desk.ask("second")
    ended = next(n for n, e in enumerate(desk.live) if e.event == TurnEnded(stopped=True))
    later = desk.live[ended + 1 :]
    assert not [e for e in later if e.turn == 1]
    assert any(isinstance(e.event, TextDelta) for e in later)
