"""`delegate_task` waits for a result, or hands out a name that will be answered for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.agent.hands import Delegated
from parley.agent.tools.delegate import delegate_task
from tests.agent.tools.lent import SmallHands, use


async def test_a_task_is_waited_for() -> None:
    hands = SmallHands(outcome=Delegated("", "42 — “ja”"))
    said = await use(delegate_task, hands, goal="count", context="up to 42", tools=["now"])
    ((name, goal, tools, background),) = hands.tasks
    assert json.loads(said.text) == {"task_id": name, "result": "42 — “ja”"}
    assert (goal, tools, background) == (
        "count\n\nWhat there is to know:\nup to 42",
        ["now"],
        False,
    )
    assert name.startswith("task_")
    assert len(name) == 17


async def test_in_the_background_there_is_a_name_and_a_promise() -> None:
    hands = SmallHands()
    said = json.loads((await use(delegate_task, hands, goal="count", background=True)).text)
    assert hands.tasks == [(said["task_id"], "count", None, True)]
    assert said["status"] == "running"
    assert "arrives here as a message" in said["note"]
    assert "result" not in said


async def test_where_nothing_can_be_delivered_later_it_runs_now_and_says_so() -> None:
    hands = SmallHands()
    result = await use(delegate_task, hands, delivers=False, goal="count", background=True)
    said = json.loads(result.text)
    assert [background for *_, background in hands.tasks] == [False]
    assert said["result"] == "42"
    assert "ran synchronously" in said["note"]
    assert "status" not in said


async def test_a_task_that_was_to_be_waited_for_has_no_note() -> None:
    result = await use(delegate_task, SmallHands(), delivers=False, goal="count")
    assert "note" not in json.loads(result.text)


@pytest.mark.parametrize("background", [True, False])
async def test_a_task_that_failed_is_told_as_such(background: bool) -> None:
    hands = SmallHands(outcome=Delegated("", "The model ended without an answer.", ok=False))
    said = await use(delegate_task, hands, delivers=False, goal="count", background=background)
    assert not said.ok
    assert said.text == "The model ended without an answer."


async def test_a_task_that_failed_without_a_word_is_told_too() -> None:
    said = await use(delegate_task, SmallHands(outcome=Delegated("", ok=False)), goal="count")
    assert not said.ok
    assert "failed" in said.text


async def test_a_task_does_not_delegate() -> None:
    hands = SmallHands()
    said = await use(delegate_task, hands, platform="task", goal="count")
    assert not said.ok
    assert "do it yourself" in said.text
    assert not hands.tasks


async def test_the_same_call_is_the_same_task() -> None:
    hands = SmallHands()
    await use(delegate_task, hands, goal="count")
    await use(delegate_task, hands, goal="count")
    await use(delegate_task, hands, call="another", goal="count")
    first, again, other = (name for name, *_ in hands.tasks)
    assert first == again != other


def test_tasks_may_run_side_by_side_as_long_as_they_need() -> None:
    assert delegate_task.parallel
    assert delegate_task.timeout_seconds is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"goal": ""},
        {"goal": "x" * 8_001},
        {"goal": "x", "context": "x" * 20_001},
        {"goal": "x", "tools": "now"},
    ],
)
async def test_what_does_not_fit_is_not_begun(arguments: dict[str, Any]) -> None:
    hands = SmallHands()
    assert not (await use(delegate_task, hands, **arguments)).ok
    assert not hands.tasks
