"""Where the far end is Parley as well: its gateway serves a profile by the same protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from parley.backends.direct import (
    AgentSessionClient,
    AgentSessionConfig,
    PlatformError,
)
from parley.protocol import Attachment, ChatMessage, Final
from tests.backends.direct.builders import ALICE, Postbox, a_direct_turn, backend_at, run
from tests.backends.proxy.builders import ending
from tests.gateway.house import House
from tests.surfaces.agent_ws.line import DirectHouse


@pytest.fixture
async def far(house: House) -> DirectHouse:
    made = DirectHouse(house)
    await made.open()
    return made


def address(far: DirectHouse) -> str:
    return far.where.replace("http", "ws", 1) + "/agent_ws/"


async def test_threads_are_answered_apart_and_each_remembers_its_own(
    far: DirectHouse, tmp_path: Path
) -> None:
    backend = backend_at(address(far), tmp_path / "near", key=far.key)
    backend.start(Postbox())
    try:
        for number in (1, 2):
            asked = (
                run(backend, a_direct_turn(f"word {chat} {number}", number=number, chat=chat))
                for chat in ("C1", "C2", "C3")
            )
            for events in await asyncio.gather(*asked):
                assert isinstance(ending(events), Final)
        assert backend.open_lines == 3
        for said in (await far.lanes()).values():
            words = {text.split()[1] for role, text in said if role == "user"}
            assert len(words) == 1
            assert len([role for role, _ in said if role == "user"]) == 2
    finally:
        await backend.close()


async def test_a_resumed_turn_is_answered_once_after_a_restart_of_the_far_end(
    far: DirectHouse, tmp_path: Path
) -> None:
    backend = backend_at(address(far), tmp_path / "near", key=far.key)
    backend.start(Postbox())
    note = tmp_path / "note.txt"
    note.write_text("the word is plum")
    item = Attachment("note.txt", "text/plain", str(note), 16)
    progress = [ChatMessage("user", "read this", attachments=(item,))]
    try:
        first = ending(await run(backend, a_direct_turn(progress=progress)))
        await far.house.close()
        await far.open()
        again = ending(await run(backend, a_direct_turn(progress=progress, attempt=2)))
        assert isinstance(first, Final)
        assert isinstance(again, Final)
        assert again.text == first.text
        [lane] = (await far.lanes()).values()
        assert len([role for role, _ in lane if role == "user"]) == 1
    finally:
        await backend.close()


async def test_a_plain_client_is_answered_and_refused_with_a_sentence(far: DirectHouse) -> None:
    config = AgentSessionConfig(address(far), key=far.key)
    response = await AgentSessionClient(config).send_message(thread_key=ALICE, text="hello")
    assert response.response
    assert response.message_id == ALICE
    stranger = AgentSessionClient(AgentSessionConfig(address(far), key="sk-wrong"))
    with pytest.raises(PlatformError) as refused:
        await stranger.send_message(thread_key=ALICE, text="hello")
    assert refused.value.code == "AGENT_REFUSED"
    nameless = AgentSessionClient(config)
    with pytest.raises(PlatformError) as refused:
        await nameless.send_message(thread_key="", text="hello")
    assert refused.value.code in {"THREAD_ID_REQUIRED", "AGENT_REFUSED"}
