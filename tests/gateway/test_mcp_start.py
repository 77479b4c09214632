"""MCP servers that start slowly: turns that need their tools wait, and status says so."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from parley.protocol import ApprovalAsked
from tests.agent.mcp.house import raw
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until, until_true

CALL = Reply(tool_calls=(("slow__echo", {"text": "hello"}),))


class AskingDesk(Desk):
    """A person sits there and can be asked."""

    can_ask = True
    shows_questions = True


class Gate:
    """Keeps the server from answering until it is opened."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "starts"
        self._open = folder / "starts.open"

    def open(self) -> None:
        self._open.touch()

    def shut(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._open.unlink()

    @property
    def settings(self) -> dict[str, Any]:
        server = raw("gated", self.file, ask="always").model_dump()
        return {"mcp": {"slow": server}, "agent": {"tools": ["mcp"]}}


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def offered(house: House) -> list[str]:
    tools = house.model.requests[-1].json.get("tools", [])
    return [tool["function"]["name"] for tool in tools]


async def starting(house: House) -> tuple[str, ...]:
    assert house.gateway is not None
    [profile] = (await house.gateway.status()).profiles
    return profile.starting


async def test_every_turn_waits_for_a_server_that_starts(
    house: House, stage: Stage, gate: Gate
) -> None:
    desk = await house.open(**gate.settings)
    assert await starting(house) == ("MCP server `slow`",)
    assert (await house.gateway.status()).ready if house.gateway else False
    await desk.say("one", chat="one", event_id="e1")
    await desk.say("two", chat="two", event_id="e2")
    await until(gate.file.exists)
    assert house.model.total == 0
    gate.open()
    await until(lambda: desk.answer_to("e1") and desk.answer_to("e2"))
    for request in house.model.requests:
        assert [each["function"]["name"] for each in request.json["tools"]] == ["slow__echo"]
    assert await starting(house) == ()


async def test_a_server_that_hangs_delays_a_turn_only_for_a_moment(
    house: House, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.agent.toolbox._FIRST_WAIT", 0.05)
    desk = await house.open(**gate.settings)
    assert (await desk.ask("hi")).endswith("hi")
    assert offered(house) == []
    assert await starting(house) == ("MCP server `slow`",)


@pytest.mark.parametrize("how", ["close", "crash"])
async def test_a_question_about_its_tool_waits_through_a_restart(
    house: House, stage: Stage, gate: Gate, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.desk_type = AskingDesk
    gate.open()
    before = await house.open(**gate.settings)
    stage.then(CALL, Reply(text="It is done."))
    await before.say("please", event_id="e1")
    await until(lambda: before.shown(ApprovalAsked))
    [first] = before.shown(ApprovalAsked)
    await (house.close() if how == "close" else house.crash())

    gate.shut()
    monkeypatch.setattr("parley.agent.toolbox._FIRST_WAIT", 0.0)
    after = await house.open(**gate.settings)
    running = house.gateway
    assert running is not None

    async def resumed() -> bool:
        return (await running.status()).running == 1

    await until_true(resumed)
    gate.open()
    await until(lambda: after.shown(ApprovalAsked))
    assert after.shown(ApprovalAsked) == [first]
    await after.ask(f"/approve {first.id}")
    await until(lambda: after.answer_to("e1"))
    assert house.words()[-1].endswith("hello")
    assert after.texts()[-1] == "It is done."
