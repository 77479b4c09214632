"""The near gateway is killed in the middle of a turn, and another goes on from its rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.agent.tools import TOOLS
from parley.surfaces.terminal.wire import Deliver
from tests.gateway.hand_tool import HandTool
from tests.proxy.houses import Pair
from tests.servers.gateway_process import GatewayProcess, write_config
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.terminal import Line
from tests.waiting import until


class Near:
    """A real process in proxy mode to the far end of a pair, and a person at its terminal."""

    def __init__(self, process: GatewayProcess) -> None:
        self.process = process

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        self.process.start()
        await self.process.until_ready()
        async with Line(self.process.socket) as line:
            await line.hello()
            yield line


@pytest.fixture
async def near(pair: Pair, tmp_path: Path) -> AsyncIterator[Near]:
    await pair.far.open(agent={"tools": ["hand"]})
    home = tmp_path / "process"
    write_config(home, model_url=pair.model.base_url, gateway={"proxy_url": pair.far.url})
    (home / ".env").write_text(f"GATEWAY_PROXY_KEY={pair.far.key}\n")
    with GatewayProcess(home) as process:
        yield Near(process)


@pytest.fixture(autouse=True)
def hand(monkeypatch: pytest.MonkeyPatch) -> HandTool:
    made = HandTool()
    monkeypatch.setitem(TOOLS, "hand", made.tool)
    return made


@pytest.mark.parametrize("before", [[], ["one"]])
async def test_after_a_kill_the_far_end_is_asked_anew_and_answers_once(
    pair: Pair, near: Near, stage: Stage, before: list[str]
) -> None:
    async with near.line() as line:
        for text in before:
            assert await line.ask(text, text) == f"echo: {text}"
        stage.then(Reply(text="never whole", chunks=2, chunk_delay=30))
        seen = len(line.streamed())
        await line.say("hello", "e1")
        await until(lambda: len(line.streamed()) > seen)
        near.process.kill()
    await pair.model.until(lambda model: model.aborted == 1)
    [there] = await pair.far.stored()
    assert [(m.text, m.note) for m in there][-2:] == [("hello", None), ("never", "interrupted")]

    told = [word for text in before for word in (text, f"echo: {text}")]
    async with near.line() as line:
        await until(lambda: line.answer_to("e1"))
        assert [d.text for d in line.all_of(Deliver) if "e1" in d.answers] == ["echo: hello"]
        assert pair.far.words() == [*told, "hello"]
        assert await line.ask("on", "e2") == "echo: on"
        assert pair.far.words() == [*told, "hello", "echo: hello", "on"]
        assert "never" not in "".join(d.text for d in line.all_of(Deliver))


async def test_a_tool_is_not_run_again_by_a_second_attempt_itself(
    pair: Pair, near: Near, stage: Stage, hand: HandTool
) -> None:
    async with near.line() as line:
        await line.ask("one", "e0")
        stage.then(Reply(text="I look.", tool_calls=(("hand", {"word": "a"}),)))
        await line.say("do it", "e1")
        await until(lambda: hand.began)
        await line.say("soon", "e2")
        await until(lambda: line.accepted("e2"))
        near.process.kill()
    await until(lambda: hand.cancelled)
    async with near.line() as line:
        await until(lambda: line.answer_to("e1") and line.answer_to("e2"))
        assert line.answer_to("e1") == line.answer_to("e2")
    # Its first attempt's step is not told: the far end is asked anew, with what came since.
    assert pair.far.words() == ["one", "echo: one", "do it", "soon"]
    assert hand.began == ["a"]
