"""What is asked in the middle of an answer, and what is told after it."""

from __future__ import annotations

import asyncio

import pytest

from parley.agent.tools import TOOLS
from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.asking_tool import AskingTool
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, begin, let_go, result_of, waiting
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.agent_ws.line import ALL, DirectHouse, Line, text_of
from tests.surfaces.api.served import a_key
from tests.waiting import until

A_CALL = Reply(tool_calls=(("deed", {"word": "a", "times": 3}),))
DONE = Reply(text="It is done.")


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch) -> AskingTool:
    tool = AskingTool()
    monkeypatch.setitem(TOOLS, "deed", tool.tool)
    return tool


@pytest.fixture
async def asking(house: House, deed: AskingTool) -> DirectHouse:
    """Whose agent has one tool, which asks before it acts."""
    made = DirectHouse(house)
    await made.open(agent={"tools": ["deed"]})
    return made


# ── questions ──


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "refused"])
async def test_a_question_is_put_to_the_client_and_its_word_counts(
    asking: DirectHouse, stage: Stage, deed: AskingTool, allowed: bool
) -> None:
    stage.then(A_CALL, DONE)
    async with asking.line(knows=ALL) as line:
        await line.send("USER_MESSAGE", text="please", id="m1")
        asked = await line.until("APPROVAL_ASKED")
        assert asked["tool"] == "deed"
        assert "`deed`" in asked["question"]
        assert deed.done == []
        await line.send("APPROVAL_ANSWER", id=asked["id"], allowed=allowed)
        await line.until("AGENT_EVENT_END")
    assert len(deed.done) == int(allowed)


async def test_a_question_that_is_open_is_put_again_to_whoever_comes_back(
    asking: DirectHouse, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, DONE)
    async with asking.line(knows=ALL) as line:
        await line.send("USER_MESSAGE", text="please", id="m1")
        asked = await line.until("APPROVAL_ASKED")
        line.drop()
    async with asking.line(knows=ALL) as line:
        await line.send("USER_MESSAGE", text="please", id="m1")
        assert (await line.until("APPROVAL_ASKED"))["id"] == asked["id"]
        await line.send("APPROVAL_ANSWER", id=asked["id"], allowed=True)
        await line.until("AGENT_EVENT_END")
    assert len(deed.done) == 1


async def test_who_knows_no_questions_is_asked_none_and_nothing_is_done(
    asking: DirectHouse, stage: Stage, deed: AskingTool
) -> None:
    stage.then(A_CALL, DONE)
    async with asking.line() as line:
        assert await line.ask("please") == "It is done."
    assert deed.done == []


async def test_another_thread_or_key_cannot_answer_the_question(
    asking: DirectHouse, stage: Stage, deed: AskingTool
) -> None:
    key, other = (a_key(asking.house.profile, name) for name in ("ann", "bob"))
    stage.then(A_CALL, DONE)
    async with asking.line(key=key, knows=ALL) as line:
        await line.send("USER_MESSAGE", text="please", id="m1")
        asked = await line.until("APPROVAL_ASKED")
        for thread, whose in (("t2", key), ("t1", other)):
            async with asking.line(thread, key=whose, knows=ALL) as stranger:
                await stranger.send("APPROVAL_ANSWER", id=asked["id"], allowed=True)
                await stranger.send("CANCEL", id="m1")
                assert (await stranger.exchange(" "))[-1]["code"] == "empty"  # it was read
        assert deed.done == []
        await line.send("APPROVAL_ANSWER", id=asked["id"], allowed=True)
        await line.until("AGENT_EVENT_END")


# ── callbacks ──


@pytest.fixture
def builds(scenes: Scenes) -> None:
    """Asked to build, the agent begins a command that waits for the file `go`."""
    scenes.when("build", begin(waiting("go", "echo built")), Reply(text="it builds"))
    scenes.when("[Background", Reply(text="the build is over"))


async def _confirmed(line: Line) -> dict[str, object]:
    callback = await line.until("CALLBACK")
    await line.send("CALLBACK_RECEIVED", id=callback["id"])
    return callback


@needs_bubblewrap
@pytest.mark.usefixtures("builds")
async def test_what_ends_later_is_told_on_the_open_connection_of_its_thread(
    direct: DirectHouse,
) -> None:
    async with (
        direct.line(knows=ALL) as line,
        direct.line() as plain,
        direct.line("t2", knows=ALL) as elsewhere,
    ):
        frames = await line.exchange("build", id="m1")
        assert frames[-1]["pending"] == 1
        let_go(direct.house, "go")
        callback = await _confirmed(line)
        assert (callback["text"], callback["pending"]) == ("the build is over", 0)
        assert await plain.ask("hello") == "heard: hello"
        assert await elsewhere.ask("hello") == "heard: hello"
        assert "CALLBACK" not in {each["type"] for each in (*plain.seen, *elsewhere.seen)}


@needs_bubblewrap
@pytest.mark.usefixtures("builds")
async def test_what_nobody_confirmed_is_said_again_under_the_same_id(direct: DirectHouse) -> None:
    async with direct.line(knows=ALL) as line:
        await line.ask("build", id="m1")
    let_go(direct.house, "go")
    store = direct.house.store
    assert store is not None
    async with asyncio.timeout(60):
        while not (await store.health()).undelivered:
            await asyncio.sleep(0.01)
    async with direct.line(knows=ALL) as line:
        assert line.seen[0]["pending"] == 1
        first = await line.until("CALLBACK")
        line.drop()
    await until(lambda: not direct.direct._open)
    async with direct.line(knows=ALL) as line:
        again = await _confirmed(line)
        assert (again["id"], again["text"]) == (first["id"], "the build is over")
    async with asyncio.timeout(60):
        while (await store.health()).undelivered:
            await asyncio.sleep(0.01)
    async with direct.line(knows=ALL) as line:
        assert line.seen[0]["pending"] == 0


@needs_bubblewrap
@pytest.mark.usefixtures("builds")
async def test_who_cannot_be_called_back_gets_no_promise(direct: DirectHouse) -> None:
    async with direct.line() as line:
        frames = await line.exchange("build")
        assert text_of(frames) == "it builds"
    told = result_of(direct.house)
    assert told["notify_on_complete"] is False
    assert "notify_unsupported" in told
