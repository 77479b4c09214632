"""Many messages and a place in the platform's stream, accepted together or not at all."""

from __future__ import annotations

import pytest

from parley.protocol import InboundMessage, SessionSource
from parley.storage.contract import StoreUnavailable
from tests.gateway.desk import at
from tests.gateway.house import House
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until


def _said(text: str, number: str, chat: str = "one") -> InboundMessage:
    return InboundMessage(at(chat), text, number)


async def test_messages_and_marks_come_in_together_and_a_repeat_is_known(house: House) -> None:
    desk = await house.open()
    assert desk.door is not None
    batch = [_said("first", "e1"), _said("second", "e2", "two"), _said("/status", "e3", "three")]
    receipts = await desk.door.admit_all(batch, {"stream": "7"})
    assert [each.state for each in receipts] == ["queued"] * 3
    assert await desk.door.mark("stream") == "7"
    await until(lambda: all(desk.answer_to(f"e{number}") for number in (1, 2, 3)))

    again = await desk.door.admit_all([*batch, _said("third", "e4")], {"stream": "8"})
    assert [each.state for each in again] == ["duplicate"] * 3 + ["queued"]
    await until(lambda: desk.answer_to("e4"))
    assert [len([d for d in desk.sent if f"e{number}" in d.answers]) for number in (1, 2, 3)] == [
        1,
        1,
        1,
    ]
    assert await desk.door.marks("str") == {"stream": "8"}
    await desk.door.put_marks({"stream": None})
    assert await desk.door.mark("stream") is None


async def test_one_that_may_not_come_in_is_refused_alone(house: House) -> None:
    desk = await house.open()
    assert desk.door is not None
    nameless = InboundMessage(SessionSource("desk", chat_type="group"), "hello", "e1")
    receipts = await desk.door.admit_all([nameless, _said("hello", "e2")], {"stream": "1"})
    assert [each.state for each in receipts] == ["refused", "queued"]
    assert await desk.door.mark("stream") == "1"
    await until(lambda: desk.answer_to("e2"))


async def test_commands_of_one_conversation_are_answered_in_their_order(house: House) -> None:
    desk = await house.open()
    assert desk.door is not None
    titles = [_said(f"/title number {number}", f"e{number}") for number in range(8)]
    await desk.door.admit_all([_said("hello", "e"), *titles], {})
    await until(lambda: desk.answer_to("e7"))
    told = [delivery.text for delivery in desk.sent if "number" in delivery.text]
    assert told == [f"This conversation is now **number {number}**." for number in range(8)]


async def test_what_is_durable_is_answered_though_its_sender_could_not_be_noted(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = await house.open()
    assert desk.door is not None
    assert house.store is not None

    async def full(*_: object) -> None:
        raise StoreUnavailable("The disk is full.")

    monkeypatch.setattr(house.store, "get_or_create_user", full)
    receipts = await desk.door.admit_all([_said("hello", "e1"), _said("/status", "e2")], {})
    assert [each.state for each in receipts] == ["queued", "queued"]
    await until(lambda: desk.answer_to("e1") and desk.answer_to("e2"))


async def test_a_message_that_was_taken_back_is_not_answered(house: House, stage: Stage) -> None:
    stage.then(Reply("The first.", delay=0.5))
    desk = await house.open(gateway={"busy": "queue"})
    assert desk.door is not None
    await desk.door.admit_all([_said("first", "e1")], {})
    await until(lambda: house.model.total == 1)
    await desk.door.admit_all([_said("second", "e2")], {})
    assert await desk.door.take_back(at("one"), "e2")
    await desk.door.admit_all([_said("third", "e3")], {})
    await until(lambda: desk.answer_to("e3"))
    assert desk.answer_to("e1") is not None
    assert desk.answer_to("e2") is None
    assert "second" not in " ".join(house.words())
    assert not await desk.door.take_back(at("one"), "e3"), "it was answered before"
