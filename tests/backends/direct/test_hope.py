"""An agent that goes and comes back: whoever knows ids is asked again, and is heard once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from parley.backends.direct.threads import Patience
from parley.protocol import Failed, Final, StepTaken, TextReset
from tests.backends.direct.builders import KEY, a_direct_turn, backend_at, direct, run
from tests.backends.proxy.builders import ending
from tests.servers.direct_agent import Capable, DirectAgent, Peer
from tests.servers.ports import free_port


def torn_once() -> Capable:
    """Goes in the midst of its first answer, and says all of it when it is asked again."""
    script = Capable()
    asked: list[str] = []

    async def reply(peer: Peer, message: dict[str, Any]) -> None:
        asked.append(message["id"])
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text="I look.")
        await peer.say("AGENT_EVENT_TOOL", id="c1", name="read_file", state="started")
        await peer.say("AGENT_EVENT_TOOL", id="c1", name="read_file", state="finished", ok=True)
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text="The half")
        if len(asked) == 1:
            await asyncio.sleep(0.05)
            peer.abort()
            return
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text=" and the rest.")
        await peer.answer()

    script.reply = reply
    return script


async def test_a_torn_answer_is_asked_for_again_and_is_whole(tmp_path: Path) -> None:
    async with DirectAgent(torn_once()) as agent, direct(agent, tmp_path) as backend:
        events = await run(backend)
        last = ending(events)
        assert isinstance(last, Final)
        assert (last.text, last.complete) == ("The half and the rest.", True)
        assert [message["id"] for message in agent.messages] == [agent.messages[0]["id"]] * 2
        assert TextReset() in events
        assert len([event for event in events if isinstance(event, StepTaken)]) == 1
        assert await backend.health() is None


async def test_one_that_was_there_a_moment_ago_is_waited_for_and_then_given_up(
    tmp_path: Path,
) -> None:
    port = free_port()
    patience = Patience(return_seconds=5)
    backend = backend_at(f"ws://127.0.0.1:{port}/agent_ws/", tmp_path, key=KEY, patience=patience)
    try:
        async with DirectAgent(port=port):
            assert isinstance(ending(await run(backend)), Final)
        asked = asyncio.create_task(run(backend, a_direct_turn("two", number=2)))
        await asyncio.sleep(0.3)
        assert not asked.done()
        async with DirectAgent(port=port):
            assert isinstance(ending(await asked), Final)
    finally:
        await backend.close()
    patience = Patience(return_seconds=0.2)
    backend = backend_at(f"ws://127.0.0.1:{port}/agent_ws/", tmp_path, key=KEY, patience=patience)
    try:
        last = ending(await run(backend, a_direct_turn(attempt=2)))
        assert isinstance(last, Failed)
        assert last.kind == "unreachable"
    finally:
        await backend.close()
