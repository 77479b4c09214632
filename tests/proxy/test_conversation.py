"""A conversation through two gateways: what the person and the model see, what is stored."""

from __future__ import annotations

import pytest

from parley.agent.tools import TOOLS
from parley.gateway.live import TurnEnded
from parley.protocol import StepTaken, ToolFinished, ToolStarted
from tests.gateway.hand_tool import HandTool
from tests.proxy.houses import Pair
from tests.servers.scripted_model import Reply, Usage
from tests.servers.stage import Stage
from tests.waiting import until


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> HandTool:
    made = HandTool()
    monkeypatch.setitem(TOOLS, "hand", made.tool)
    return made


async def test_the_far_model_sees_everything_once(pair: Pair) -> None:
    desk = await pair.open()
    assert await desk.ask("one") == "echo: one"
    assert await desk.ask("two") == "echo: two"
    assert await desk.ask("three") == "echo: three"
    whole = ["one", "echo: one", "two", "echo: two", "three"]
    assert pair.far.words() == whole
    expected = [("user", "one"), ("assistant", "echo: one"), ("user", "two")]
    expected += [("assistant", "echo: two"), ("user", "three"), ("assistant", "echo: three")]
    assert await pair.near.said() == expected
    assert await pair.far.stored_words() == expected


async def test_the_far_agent_keeps_its_soul_and_is_told_who_speaks(pair: Pair) -> None:
    pair.far.profile.soul_file.write_text("You are the keeper of the far light.")
    pair.near.profile.soul_file.write_text("You are nobody's business.")
    desk = await pair.open()
    await desk.ask("hi")
    [system] = [m for m in pair.model.requests[-1].json["messages"] if m["role"] == "system"]
    assert "far light" in system["content"]
    assert "Desk with Ann" in system["content"]
    assert "nobody" not in system["content"]


async def test_tools_at_work_there_are_shown_here(pair: Pair, stage: Stage, hand: HandTool) -> None:
    desk = await pair.open(agent={"tools": ["hand"]})
    stage.then(
        Reply(text="I look.", tool_calls=(("hand", {"word": "a"}),), usage=Usage(10, 1)),
        Reply(text="It is done.", usage=Usage(20, 2)),
    )
    await desk.say("do it", event_id="e1")
    await until(lambda: desk.shown(ToolStarted))
    assert hand.began == ["a"]
    assert desk.shown(ToolFinished) == []
    assert desk.streamed() == "I look."
    hand.let_go()
    await until(lambda: desk.answer_to("e1"))
    [started], [finished] = desk.shown(ToolStarted), desk.shown(ToolFinished)
    assert (started.call.name, started.call.arguments) == ("hand", {"word": "a"})
    assert (finished.call, finished.ok) == (started.call, True)
    [step] = desk.shown(StepTaken)
    assert step.messages[0].text == "I look."
    await until(lambda: desk.shown(TurnEnded))
    [ended] = desk.shown(TurnEnded)
    assert ended.usage is not None
    assert (ended.usage.input_tokens, ended.usage.output_tokens) == (30, 3)


async def test_what_tools_found_there_is_remembered_there(
    pair: Pair, stage: Stage, hand: HandTool
) -> None:
    desk = await pair.open(agent={"tools": ["hand"]})
    hand.let_go()
    stage.then(Reply(text="I look.", tool_calls=(("hand", {"word": "a"}),)), Reply(text="Done."))
    assert await desk.ask("do it") == "Done."
    assert await pair.near.said() == [
        ("user", "do it"),
        ("assistant", "I look."),
        ("assistant", "Done."),
    ]
    await desk.ask("what was it?")
    asked = pair.far.asked()
    assert [m["role"] for m in asked] == ["user", "assistant", "tool", "assistant", "user"]
    assert asked[2]["content"] == "hand did a"


async def test_a_tool_that_failed_there_is_shown_as_failed(
    pair: Pair, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = HandTool(fails_with=OSError(5, "no hands"))
    broken.let_go()
    monkeypatch.setitem(TOOLS, "hand", broken.tool)
    desk = await pair.open(agent={"tools": ["hand"]})
    stage.then(Reply(tool_calls=(("hand", {}),)))
    assert await desk.ask("do it [[tool hand {}]]") == "tool said: hand failed: no hands."
    assert [finished.ok for finished in desk.shown(ToolFinished)] == [False]


async def test_each_conversation_has_its_own_at_the_far_end(pair: Pair) -> None:
    desk = await pair.open()
    await desk.ask("mine", chat="one")
    await desk.ask("yours", chat="two")
    await desk.ask("again", chat="one")
    assert pair.far.words() == ["mine", "echo: mine", "again"]
    assert len(await pair.far.stored()) == 2


async def test_messages_that_wait_go_along_with_the_next_turn(pair: Pair, stage: Stage) -> None:
    desk = await pair.open()
    stage.then(Reply(text="Well, well.", chunks=2, chunk_delay=0.1))
    await desk.say("first", event_id="e1")
    await until(desk.streamed)
    await desk.say("second", event_id="e2")
    await desk.say("third", event_id="e3")
    await until(lambda: desk.answer_to("e2") and desk.answer_to("e3"))
    assert desk.texts() == ["Well, well.", "echo: second | third"]
    assert pair.far.words() == ["first", "Well, well.", "second", "third"]
    words = [text for _, text in await pair.far.stored_words()]
    assert words == ["first", "Well, well.", "second", "third", "echo: second | third"]


async def test_a_message_that_interrupts_stops_the_far_end(pair: Pair, stage: Stage) -> None:
    await pair.far.open()
    desk = await pair.near.open(gateway={"busy": "interrupt"})
    stage.then(Reply(text="Well, well.", chunks=2, chunk_delay=30))
    await desk.say("first")
    await until(desk.streamed)
    assert await desk.ask("no, this") == "echo: no, this"
    assert pair.model.aborted == 1
    words = pair.far.words()
    assert [words[0], words[-1], len(words)] == ["first", "no, this", 3]


async def test_a_restart_here_asks_the_far_end_anew(
    pair: Pair, stage: Stage, hand: HandTool
) -> None:
    desk = await pair.open(agent={"tools": ["hand"]})
    await desk.ask("one")
    stage.then(Reply(text="I look.", tool_calls=(("hand", {"word": "a"}),)))
    await desk.say("two", event_id="e2")
    await until(lambda: desk.shown(StepTaken))
    await pair.near.close()
    await until(lambda: hand.cancelled)
    desk = await pair.near.open()
    await until(lambda: desk.answer_to("e2"))
    assert desk.texts() == ["echo: two"]
    assert pair.far.words() == ["one", "echo: one", "two"]


@pytest.mark.parametrize("path", ["/v1", "/p/default", "/p/default/v1"])
async def test_the_address_may_name_the_profile_or_the_version(pair: Pair, path: str) -> None:
    await pair.far.open()
    pair.near.far_url = pair.far.url + path
    desk = await pair.near.open()
    assert await desk.ask("hi") == "echo: hi"
    assert pair.near.gateway is not None
    [told] = (await pair.near.gateway.status()).profiles
    assert told.faults == ()


async def test_an_agent_may_be_chosen_by_its_name(pair: Pair) -> None:
    await pair.far.open()
    desk = await pair.near.open(gateway={"proxy_model": "default"})
    assert await desk.ask("hi") == "echo: hi"
