"""`clarify` over a real gateway: the person's next word is the answer, however busy it is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from parley.gateway import serving
from parley.gateway.live import TurnStarted
from parley.protocol import InboundMessage
from parley.sessions.key import build_session_key
from parley.storage.sqlite import SqliteStore
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.gateway.room import Room, direct, in_thread
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until

QUESTION = Reply(tool_calls=(("clarify", {"question": "Which colour?", "choices": ["red"]}),))
ASKED = "Which colour?\n1. red"
DONE = Reply(text="Painted.")
AGENT = {"tools": ["clarify"]}
MODES = ["steer", "queue", "interrupt"]


@pytest.fixture(params=MODES)
def busy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def opened(house: House, busy: str = "steer") -> Room:
    house.desk_type = Room
    room = await house.open(agent=AGENT, gateway={"busy": busy, "drain_seconds": 0.2})
    assert isinstance(room, Room)
    return room


async def asked(room: Room, count: int = 1) -> None:
    await until(lambda: [d.text for d in room.sent].count(ASKED) == count)


async def test_the_next_message_is_the_answer(house: House, stage: Stage, busy: str) -> None:
    room = await opened(house, busy)
    stage.then(QUESTION, DONE)
    first = await room.tell("ann", "paint it")
    await asked(room)
    answer = await room.tell("ann", "green")
    assert await room.reply_to(first) == "Painted."
    assert room.answer_to(answer) == room.answer_to(first)
    told = [(each["role"], each["content"]) for each in house.asked()]
    assert told[2:] == [
        ("tool", "The person's answer is the next message."),
        ("user", "green"),
    ]
    assert [d.text for d in room.sent] == [ASKED, "Painted."]


async def test_commands_are_no_answers(house: House, stage: Stage, busy: str) -> None:
    room = await opened(house, busy)
    stage.then(QUESTION, DONE)
    first = await room.tell("ann", "paint it")
    await asked(room)
    for command in ("/status", "/help", "!yes", "/nonsense"):
        await room.hear("ann", command)
    assert room.answer_to(first) is None
    await room.tell("ann", "green")
    assert await room.reply_to(first) == "Painted."
    assert house.words()[-1] == "green"
    assert len(house.asked()) == 4


async def test_what_was_said_before_the_question_is_no_answer(house: House, stage: Stage) -> None:
    room = await opened(house, "queue")
    waiting = asyncio.Event()

    def slow(told: Mapping[str, Any]) -> Reply:
        waiting.set()
        return Reply(tool_calls=QUESTION.tool_calls, delay=0.3)

    stage.then(slow, DONE)
    first = await room.tell("ann", "paint it")
    await waiting.wait()
    await room.tell("ann", "and sweep the floor")
    await asked(room)
    assert room.answer_to(first) is None
    await room.tell("ann", "green")
    assert await room.reply_to(first) == "Painted."
    assert house.words()[-2:] == ["and sweep the floor", "green"]


async def test_others_in_the_room_do_not_answer(house: House, stage: Stage, busy: str) -> None:
    room = await opened(house, busy)
    stage.then(QUESTION, DONE)
    first = await room.tell("ann", "paint it", at=in_thread)
    await asked(room)
    other = await room.tell("bob", "nice weather", at=in_thread)
    await room.hear("bob", "/status", at=in_thread)
    assert room.answer_to(first) is None
    await room.tell("ann", "green", at=in_thread)
    assert await room.reply_to(first) == "Painted."
    assert house.words(1)[-1] == "green"
    assert await room.reply_to(other) == "echo: nice weather"


async def test_what_comes_by_itself_does_not_answer(house: House, stage: Stage) -> None:
    room = await opened(house)
    stage.then(QUESTION, DONE)
    first = await room.tell("ann", "paint it")
    await asked(room)
    await room.admit(InboundMessage(direct("ann"), "It is noon.", "job-1", internal=True))
    await room.hear("ann", "/status")
    assert room.answer_to(first) is None
    await room.tell("ann", "green")
    assert await room.reply_to(first) == "Painted."
    assert len(house.words()) == 5
    assert house.words()[-1] == "green"


async def test_silence_is_told_and_a_later_word_is_an_ordinary_message(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch, busy: str
) -> None:
    monkeypatch.setattr(serving, "_MINUTE", 0.01)
    room = await opened(house, busy)
    stage.then(QUESTION, DONE)
    assert await room.hear("ann", "paint it") == "Painted."
    assert house.words()[-1].startswith("No answer came in time")
    assert (await room.hear("ann", "green")).startswith("echo: ")


async def test_a_stop_ends_the_waiting(house: House, stage: Stage, busy: str) -> None:
    room = await opened(house, busy)
    stage.then(QUESTION)
    await room.tell("ann", "paint it")
    await asked(room)
    assert await room.hear("ann", "/stop") == "Stopped."
    assert (await room.hear("ann", "green")).startswith("echo: ")


@pytest.mark.parametrize("how", ["close", "crash"])
async def test_after_a_restart_the_question_is_not_sent_twice(
    house: House, stage: Stage, how: str, busy: str
) -> None:
    before = await opened(house, busy)
    stage.then(QUESTION, DONE)
    first = await before.tell("ann", "paint it")
    await asked(before)
    await (house.close() if how == "close" else house.crash())
    after = await opened(house, busy)
    await until(lambda: after.shown(TurnStarted))
    await after.tell("ann", "green")
    assert await after.reply_to(first) == "Painted."
    assert [d.text for d in after.sent] == ["Painted."]
    assert house.words()[-1] == "green"


@pytest.mark.parametrize("how", ["close", "crash"])
async def test_an_answer_that_came_while_the_gateway_was_away_counts(
    house: House, stage: Stage, how: str, busy: str
) -> None:
    before = await opened(house, busy)
    stage.then(QUESTION, DONE)
    first = await before.tell("ann", "paint it")
    await asked(before)
    await (house.close() if how == "close" else house.crash())
    store = SqliteStore.open(house.profile.database_file)
    lane = build_session_key(direct("ann"))
    await store.submit(lane, "desk::late", InboundMessage(direct("ann"), "green", "late"))
    await store.close()
    after = await opened(house, busy)
    assert await after.reply_to(first) == "Painted."
    assert [d.text for d in after.sent] == ["Painted."]
    assert house.words()[-1] == "green"


async def test_a_second_question_is_a_question_of_its_own(
    house: House, stage: Stage, busy: str
) -> None:
    room = await opened(house, busy)
    stage.then(QUESTION, QUESTION, DONE)
    first = await room.tell("ann", "paint it")
    await asked(room)
    await room.tell("ann", "green")
    await asked(room, 2)
    assert room.answer_to(first) is None
    await room.tell("ann", "no, blue")
    assert await room.reply_to(first) == "Painted."
    assert [said for said in house.words() if said in ("green", "no, blue")] == [
        "green",
        "no, blue",
    ]


async def test_where_nobody_can_be_asked_nobody_is(house: House, stage: Stage) -> None:
    house.desk_type = Desk
    desk = await house.open(agent=AGENT)
    stage.then(QUESTION, DONE)
    assert await desk.ask("paint it") == "Painted."
    assert desk.texts() == ["Painted."]
    assert house.words()[-1].startswith("Nobody can be asked here")
