"""A person who first writes to the agent alone is greeted, once."""

from __future__ import annotations

import pytest

from parley.protocol import InboundMessage, SessionSource
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.waiting import until

HELLO = "Hello"


class GreetingDesk(Desk):
    """A place where people find the agent by themselves."""

    greets = True


@pytest.fixture
async def desk(house: House) -> Desk:
    house.desk_type = GreetingDesk
    return await house.open()


def greetings(desk: Desk) -> list[str]:
    return [text for text in desk.texts() if text.startswith(HELLO)]


async def test_who_is_new_is_greeted_once_and_answered(desk: Desk) -> None:
    await desk.say("hi", event_id="e1")
    await until(lambda: desk.answer_to("e1") and greetings(desk))
    assert "/help" in greetings(desk)[0]
    await desk.say("again", event_id="e2")
    await until(lambda: desk.answer_to("e2"))
    assert len(greetings(desk)) == 1


@pytest.mark.parametrize("how", ["close", "crash"])
async def test_nobody_is_greeted_again_after_a_restart(house: House, desk: Desk, how: str) -> None:
    await desk.say("hi", event_id="e1")
    await until(lambda: desk.answer_to("e1") and greetings(desk))
    await (house.close() if how == "close" else house.crash())
    after = await house.open()
    await after.say("again", event_id="e2")
    await until(lambda: after.answer_to("e2"))
    assert greetings(after) == []


async def test_the_greeting_is_no_part_of_what_the_model_reads(house: House, desk: Desk) -> None:
    await desk.say("hi", event_id="e1")
    await until(lambda: desk.answer_to("e1") and greetings(desk))
    await desk.say("again", event_id="e2")
    await until(lambda: desk.answer_to("e2"))
    assert not any(word.startswith(HELLO) for word in house.words())


async def test_a_place_that_does_not_greet_stays_quiet(house: House) -> None:
    desk = await house.open()
    await desk.say("hi", event_id="e1")
    await until(lambda: desk.answer_to("e1"))
    assert greetings(desk) == []


async def test_nobody_is_greeted_in_a_group(desk: Desk) -> None:
    source = SessionSource("desk", chat_id="many", chat_type="group", user_id="bob")
    assert desk.door is not None
    await desk.door.admit(InboundMessage(source, "hi", "g1"))
    await until(lambda: desk.answer_to("g1"))
    assert greetings(desk) == []
