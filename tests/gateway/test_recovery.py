"""A gateway that ended in the middle, and the next one on the same home."""

from __future__ import annotations

import sqlite3
import time

import pytest

from parley.agent.tools import TOOLS
from parley.gateway.live import TurnStarted
from parley.protocol import ParleyError, ToolStarted
from parley.storage.contract import Delivery
from parley.surfaces.base import NotSent, Unreachable
from tests.gateway.desk import Desk, at
from tests.gateway.hand_tool import HandTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until

TOOL_CALL = Reply(tool_calls=(("hand", {"word": "a"}),))


def given(monkeypatch: pytest.MonkeyPatch, hand: HandTool) -> HandTool:
    monkeypatch.setitem(TOOLS, hand.tool.name, hand.tool)
    return hand


async def test_a_message_that_was_being_answered_is_answered_after_a_crash(
    house: House, stage: Stage
) -> None:
    desk = await house.open()
    stage.then(Reply(text="never whole", chunks=2, chunk_delay=30))
    await desk.say("hello", event_id="e1")
    await until(desk.streamed)
    await desk.say("waiting", event_id="e2")
    await house.crash()
    desk = await house.open()
    await until(lambda: desk.answer_to("e1") and desk.answer_to("e2"))
    assert desk.shown(TurnStarted)[0] == TurnStarted(resumed=True)
    assert [text for role, text in await house.said() if role == "user"] == ["hello", "waiting"]
    assert "never" not in "".join(text for _, text in await house.said())


async def test_a_turn_resumes_from_its_last_step(
    house: House, stage: Stage, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = given(monkeypatch, HandTool(safe_to_repeat=True))
    desk = await house.open(agent={"tools": ["hand"]})
    stage.then(TOOL_CALL)
    await desk.say("hello", event_id="e1")
    await until(lambda: hand.began)
    await house.crash()
    hand.let_go()
    desk = await house.open(agent={"tools": ["hand"]})
    await until(lambda: desk.answer_to("e1"))
    # The reply that asked for the tool was journalled: only the call after it was still to make.
    assert model.total == 2
    assert [m["role"] for m in house.asked()] == ["user", "assistant", "tool"]
    assert (await house.session()).input_tokens == 14


async def test_a_tool_that_is_safe_to_repeat_is_run_again(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = given(monkeypatch, HandTool(safe_to_repeat=True))
    desk = await house.open(agent={"tools": ["hand"]})
    stage.then(TOOL_CALL)
    await desk.say("hello")
    await until(lambda: hand.began)
    await house.crash()
    hand.let_go()
    desk = await house.open(agent={"tools": ["hand"]})
    await until(lambda: desk.sent)
    assert hand.began == ["a", "a"]
    assert house.words()[-1] == "hand did a"


async def test_a_tool_whose_outcome_is_unknown_is_reported_and_not_run_again(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = given(monkeypatch, HandTool())
    desk = await house.open(agent={"tools": ["hand"]})
    stage.then(TOOL_CALL)
    await desk.say("hello")
    await until(lambda: hand.began)
    await house.crash()
    hand.let_go()
    desk = await house.open(agent={"tools": ["hand"]})
    await until(lambda: desk.sent)
    assert hand.began == ["a"]
    assert desk.shown(ToolStarted) == []
    assert "outcome of this call is unknown" in house.words()[-1]
    assert [m.note for m in await house.transcript()] == [None, None, "unknown-outcome", None]


async def test_results_that_were_seen_before_a_crash_are_not_fetched_again(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = given(monkeypatch, HandTool("quick", parallel=True, safe_to_repeat=True))
    slow = given(monkeypatch, HandTool("slow", parallel=True, safe_to_repeat=True))
    desk = await house.open(agent={"tools": ["quick", "slow"]})
    stage.then(Reply(tool_calls=(("quick", {"word": "a"}), ("slow", {"word": "b"}))))
    await desk.say("hello")
    await until(lambda: slow.began)
    quick.let_go()
    while len(await house.said()) < 3:
        assert quick.began == ["a"]
    await house.crash()
    slow.let_go()
    desk = await house.open(agent={"tools": ["quick", "slow"]})
    await until(lambda: desk.sent)
    assert quick.began == ["a"]
    assert slow.began == ["b", "b"]


async def test_a_steered_message_survives_a_crash(
    house: House, stage: Stage, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = given(monkeypatch, HandTool())
    desk = await house.open(agent={"tools": ["hand"]})
    stage.then(TOOL_CALL, Reply(text="late", delay=30))
    await desk.say("hello", event_id="e1")
    await until(lambda: hand.began)
    await desk.say("also", event_id="e2")
    hand.let_go()
    await model.until(lambda m: m.total == 2)
    await house.crash()
    desk = await house.open(agent={"tools": ["hand"]})
    await until(lambda: desk.sent)
    assert desk.sent[0].answers == ("e1", "e2")
    assert house.words()[-1] == "also"
    assert [role for role, _ in await house.said()] == [
        *("user", "assistant", "tool", "user", "assistant"),
    ]


async def test_a_turn_stopped_before_a_crash_stays_stopped(house: House, stage: Stage) -> None:
    desk = await house.open()
    stage.then(Reply(text="old words", chunks=2, chunk_delay=30))
    await desk.say("hello", event_id="e1")
    await until(desk.streamed)
    await desk.ask("/stop")
    await house.crash()
    desk = await house.open()
    await desk.ask("next")
    assert desk.answer_to("e1") is None
    assert len(desk.sent) == 1


async def test_a_stop_lets_turns_finish_for_a_while(house: House) -> None:
    desk = await house.open(gateway={"drain_seconds": 5})
    await desk.say("[[delay 0.2]] hello", event_id="e1")
    await until(lambda: house.model.open_streams == 1)
    await house.close()
    assert desk.answer_to("e1") is not None


async def test_a_long_turn_is_set_aside_and_finished_by_the_next_start(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    desk = await house.open(gateway={"drain_seconds": 0.1})
    stage.then(Reply(text="too long", delay=30))
    await desk.say("hello", event_id="e1")
    await model.until(lambda m: m.open_streams == 1)
    before = time.monotonic()
    await house.close()
    assert time.monotonic() - before < 20
    await model.until(lambda m: m.aborted == 1)
    assert not desk.sent
    desk = await house.open()
    await until(lambda: desk.answer_to("e1"))
    assert desk.texts() == ["echo: hello"]


async def test_a_stopping_gateway_can_be_hurried(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    desk = await house.open(gateway={"drain_seconds": 60})
    stage.then(Reply(text="too long", delay=30))
    await desk.say("hello", event_id="e1")
    await model.until(lambda m: m.open_streams == 1)
    assert house.gateway is not None
    house.gateway.hurry()
    before = time.monotonic()
    await house.close()
    assert time.monotonic() - before < 20
    desk = await house.open()
    await until(lambda: desk.answer_to("e1"))


async def test_a_stopping_gateway_takes_no_message(house: House) -> None:
    desk = await house.open()
    door = desk.door
    assert door is not None
    await house.close()
    with pytest.raises(ParleyError, match="The gateway is stopping"):
        await desk.start(door)
        await desk.say("hello")


async def test_a_turn_that_ends_the_gateway_each_time_is_given_up(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    async def asked(times: int) -> None:
        await model.until(lambda m: m.total == times)

    desk = await house.open()
    stage.then(*(Reply(text="never", delay=30) for _ in range(25)))
    await desk.say("hello", event_id="e1")
    for tries in range(1, 21):
        await asked(tries)
        assert not desk.sent
        await house.crash()
        desk = await house.open()
    await until(lambda: house.desk.sent)
    [reply] = desk.sent
    assert (reply.kind, reply.answers) == ("error", ("e1",))
    assert reply.text == "I gave up on this message: the gateway ended each time I tried."
    assert model.total == 20
    stage.clear()
    assert await desk.ask("next") == "echo: hello | next"


# ── replies ──


async def test_a_reply_is_tried_again_until_it_goes_and_is_delivered_once(house: House) -> None:
    desk = await house.open()
    tries: list[Delivery] = []

    def twice(delivery: Delivery) -> None:
        tries.append(delivery)
        if len(tries) < 3:
            raise NotSent("not now", after=0.01)

    desk.before_send = twice
    await desk.say("hello")
    await until(lambda: desk.sent)
    assert desk.texts() == ["echo: hello"]
    assert {d.dedupe for d in tries} == {"turn:1"}


async def test_a_reply_nobody_was_there_for_waits_until_they_are_back(house: House) -> None:
    desk = await house.open()

    def away(delivery: Delivery) -> None:
        raise Unreachable("nobody is there")

    desk.before_send = away
    await desk.say("hello")
    await until(lambda: house.model.total == 1 and house.model.open_streams == 0)
    await house.close()
    desk = await house.open()
    assert desk.door is not None
    assert not desk.sent
    await desk.door.back(at("one"))
    await until(lambda: desk.sent)
    assert desk.texts() == ["echo: hello"]


@pytest.mark.parametrize("knows", [True, False])
async def test_a_reply_being_sent_at_a_crash_goes_again_only_where_a_repeat_is_known(
    house: House, knows: bool
) -> None:
    import asyncio

    class Slow(Desk):
        knows_repeats = knows
        hold = True

        async def send(self, delivery: Delivery) -> str | None:
            done = await super().send(delivery)
            if self.hold:
                await asyncio.Event().wait()
            return done

    house.desk_type = Slow
    desk = await house.open()
    await desk.say("hello")
    await until(lambda: desk.sent)
    await house.crash()
    Slow.hold = False
    desk = await house.open()
    if knows:
        await until(lambda: desk.sent)
        assert [d.dedupe for d in desk.sent] == ["turn:1"]
    assert house.gateway is not None
    await desk.ask("next")
    assert len(desk.sent) == (2 if knows else 1)
    doubtful = (await house.gateway.status()).profiles[0].doubtful
    assert [note.text for note in doubtful] == ([] if knows else ["echo: hello"])


async def test_nothing_is_left_behind_by_answered_turns(house: House) -> None:
    desk = await house.open()
    for number in range(5):
        await desk.ask(f"[[tool now {{}}]] {number}")
    await house.close()
    with sqlite3.connect(house.profile.database_file) as db:
        assert db.execute("SELECT DISTINCT state FROM inbox").fetchall() == [("done",)]
        assert db.execute("SELECT DISTINCT state FROM outbox").fetchall() == [("sent",)]
        assert db.execute("SELECT DISTINCT state FROM turn").fetchall() == [("done",)]
        assert db.execute("SELECT DISTINCT state, owner FROM lane").fetchall() == [("idle", None)]
