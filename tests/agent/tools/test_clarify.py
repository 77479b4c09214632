"""`clarify` asks the person, where there is one to be asked."""

from __future__ import annotations

from typing import Any

import pytest

from parley.agent.tools.clarify import clarify
from tests.agent.tools.lent import SmallHands, use


async def test_a_question_is_put_with_its_choices_numbered() -> None:
    hands = SmallHands()
    said = await use(clarify, hands, question="Which cake?", choices=["nut", "plum\n\nor pear"])
    assert hands.asked == [("turn 1 call 1", "Which cake?\n1. nut\n2. plum or pear")]
    assert said.text == "The person's answer is the next message."


async def test_a_question_without_choices_is_put_as_it_is() -> None:
    hands = SmallHands()
    await use(clarify, hands, question="Which cake?", choices=[])
    assert hands.asked == [("turn 1 call 1", "Which cake?")]


async def test_silence_is_told() -> None:
    said = await use(clarify, SmallHands(answers=False), question="Which cake?")
    assert said.ok
    assert said.text.startswith("No answer came in time")


async def test_where_nobody_can_be_asked_nobody_is() -> None:
    hands = SmallHands(can_clarify=False)
    said = await use(clarify, hands, question="Which cake?")
    assert not said.ok
    assert said.text.startswith("Nobody can be asked here")
    assert not hands.asked


def test_the_gateway_keeps_the_time_and_the_turn_may_wait() -> None:
    assert clarify.timeout_seconds is None
    assert clarify.waits_for_people


@pytest.mark.parametrize(
    "arguments",
    [
        {"question": ""},
        {"question": "x" * 2_001},
        {"question": "x", "choices": ["a"] * 7},
        {"question": "x", "choices": ["a", " "]},
        {"question": "x", "choices": ["a" * 201]},
    ],
)
async def test_what_does_not_fit_is_not_asked(arguments: dict[str, Any]) -> None:
    hands = SmallHands()
    assert not (await use(clarify, hands, **arguments)).ok
    assert not hands.asked
