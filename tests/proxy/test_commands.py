"""What a person takes back or stops here, they take back or stop at the far end as well."""

from __future__ import annotations

import pytest

from parley.agent.tools import TOOLS
from tests.gateway.hand_tool import HandTool
from tests.proxy.houses import Pair
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until

LONG = Reply(text="This is a long story.", chunks=3, chunk_delay=30)


async def test_stop_reaches_the_far_model(pair: Pair, stage: Stage) -> None:
    desk = await pair.open()
    stage.then(LONG)
    await desk.say("tell")
    await until(desk.streamed)
    assert await desk.ask("/stop") == "Stopped."
    await pair.model.until(lambda model: model.aborted == 1)
    assert pair.model.open_streams == 0

    [told] = await pair.far.stored()
    assert [(m.role, m.text, m.note) for m in told] == [
        ("user", "tell", None),
        ("assistant", "This is", "interrupted"),
    ]
    assert [(m.role, m.note) for m in await pair.near.transcript()] == [
        ("user", None),
        ("assistant", "interrupted"),
    ]
    assert await desk.ask("and now?") == "echo: and now?"
    asked = pair.far.words()
    assert asked[0] == "tell"
    assert asked[1].startswith("This is")
    assert "stopped" in asked[1]
    assert asked[2:] == ["and now?"]


async def test_stop_before_the_first_word_reaches_the_far_model(pair: Pair, stage: Stage) -> None:
    desk = await pair.open()
    stage.then(Reply(text="never", delay=30))
    await desk.say("tell")
    await pair.model.until(lambda model: model.open_streams == 1)
    assert await desk.ask("/stop") == "Stopped."
    await pair.model.until(lambda model: model.aborted == 1)
    await desk.ask("hi")
    assert pair.far.words() == ["tell", "hi"]


async def test_stop_reaches_a_tool_at_work_there(
    pair: Pair, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandTool()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    desk = await pair.open(agent={"tools": ["hand"]})
    stage.then(Reply(tool_calls=(("hand", {"word": "a"}),)))
    await desk.say("work")
    await until(lambda: hand.began)
    assert await desk.ask("/stop") == "Stopped."
    await until(lambda: hand.cancelled)


async def test_what_is_undone_here_is_not_seen_there(pair: Pair) -> None:
    desk = await pair.open()
    await desk.ask("one")
    await desk.ask("slip")
    await desk.ask("/undo")
    await desk.ask("two")
    assert pair.far.words() == ["one", "echo: one", "two"]
    await desk.ask("three")
    assert pair.far.words() == ["one", "echo: one", "two", "echo: two", "three"]


async def test_a_first_message_that_is_undone_is_not_seen_there(pair: Pair) -> None:
    desk = await pair.open()
    await desk.ask("slip")
    await desk.ask("/undo")
    await desk.ask("one")
    assert pair.far.words() == ["one"]
    await desk.ask("two")
    assert pair.far.words() == ["one", "echo: one", "two"]


async def test_one_of_two_equal_exchanges_is_undone(pair: Pair) -> None:
    desk = await pair.open()
    await desk.ask("hi")
    await desk.ask("hi")
    await desk.ask("/undo")
    await desk.ask("one")
    assert pair.far.words() == ["hi", "echo: hi", "one"]


@pytest.mark.parametrize("before", [[], ["one"]])
async def test_a_retry_asks_the_same_once_more(pair: Pair, stage: Stage, before: list[str]) -> None:
    desk = await pair.open()
    for text in before:
        await desk.ask(text)
    stage.then(Reply(text="bad"), Reply(text="good"))
    assert await desk.ask("try") == "bad"
    await desk.say("/retry")
    await until(lambda: "good" in desk.texts())
    told = [word for text in before for word in (text, f"echo: {text}")]
    assert pair.far.words() == [*told, "try"]
    await desk.ask("on")
    assert pair.far.words() == [*told, "try", "good", "on"]


async def test_a_new_conversation_here_is_a_new_one_there(pair: Pair) -> None:
    desk = await pair.open()
    await desk.ask("old")
    await desk.ask("/new")
    await desk.ask("fresh")
    assert pair.far.words() == ["fresh"]
    assert len(await pair.far.stored()) == 2
    await desk.ask("/resume 2")
    await desk.ask("back")
    assert pair.far.words() == ["old", "echo: old", "back"]
