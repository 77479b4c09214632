"""What the agent sends besides its answer: here, and where this person may have something said."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing

import pytest

from parley.protocol import ChatMessage, InboundMessage, SessionSource, Usage
from parley.storage.contract import Claim
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, calls
from tests.servers.scripted_model import Reply
from tests.waiting import until

_TEXT = "By the way, it rains."


def _sends(scenes: Scenes, to: str | None = None) -> None:
    scenes.when("tell", calls(("send_message", {"text": _TEXT, "to": to})), Reply(text="told"))


async def _hear(desk: Desk, user: str) -> None:
    """Somebody speaks in a chat of their own."""
    source = SessionSource("desk", chat_id=f"of-{user}", user_id=user, chat_name=f"room of {user}")
    await desk.admit(InboundMessage(source, "hello", f"hello-{user}"))
    await until(lambda: desk.texts(f"of-{user}") == ["heard: hello"])


async def test_a_message_of_the_running_turn_comes_before_its_answer(
    house: House, scenes: Scenes
) -> None:
    _sends(scenes)
    desk = await house.open()
    assert await desk.ask("tell me") == "told"
    assert desk.texts() == [_TEXT, "told"]
    assert "this conversation" in house.words()[-1]


async def test_a_message_to_another_conversation_stands_in_its_transcript(
    house: House, scenes: Scenes
) -> None:
    desk = await house.open()
    await _hear(desk, "ann")
    _sends(scenes, to="room of ann")
    assert await desk.ask("tell me there") == "told"
    await until(lambda: _TEXT in desk.texts("of-ann"))
    assert desk.texts() == ["told"]
    assert (await house.said("of-ann"))[-1] == ("assistant", _TEXT)
    assert house.model.total == 3


@pytest.mark.parametrize("owner", [False, True])
async def test_only_an_owner_has_something_said_in_the_conversation_of_another(
    house: House, scenes: Scenes, owner: bool
) -> None:
    desk = await house.open(access={"owners": ["desk:ann"] if owner else []})
    await _hear(desk, "bob")
    _sends(scenes, to="agent:main:desk:dm:of-bob")
    assert await desk.ask("tell him") == "told"
    if owner:
        await until(lambda: _TEXT in desk.texts("of-bob"))
        return
    assert "no such conversation" in house.words()[-1]
    assert "bob" not in house.words()[-1]
    assert desk.texts("of-bob") == ["heard: hello"]


async def test_nobody_gets_a_message_by_calling_their_chat_as_another_is_called(
    house: House, scenes: Scenes
) -> None:
    desk = await house.open(access={"owners": ["desk:ann"]})
    await _hear(desk, "eve")
    _sends(scenes, to="room of eve")
    assert await desk.ask("tell her") == "told"
    told = house.words()[-1]
    assert "no such conversation" in told
    assert "desk:eve" in told, "by which the right one can be chosen"
    assert desk.texts("of-eve") == ["heard: hello"]


async def test_a_message_is_not_sent_again_when_its_call_was_not_journalled(
    house: House, scenes: Scenes
) -> None:
    _sends(scenes)
    desk = await house.open()
    assert house.store is not None
    step = house.store.step

    async def never_a_result(
        claim: Claim, messages: Sequence[ChatMessage], usage: Usage | None = None
    ) -> None:
        if messages[0].role == "tool":
            await asyncio.Event().wait()
        await step(claim, messages, usage)

    house.store.step = never_a_result  # type: ignore[method-assign]
    await desk.say("tell me")
    await until(lambda: desk.texts() == [_TEXT])
    await house.crash()
    desk = await house.open()
    await until(lambda: "told" in desk.texts())
    assert "this conversation" in house.words()[-1]
    # One row, so one name: a repeat of it, after a send that was not confirmed, is known as such.
    with closing(sqlite3.connect(house.profile.database_file)) as db:
        rows = db.execute("SELECT state FROM outbox WHERE text = ?", (_TEXT,)).fetchall()
    assert rows == [("sent",)]
