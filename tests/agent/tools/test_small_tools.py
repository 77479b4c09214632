"""What holds for all tools that stand on the gateway's hands alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.agent.tools import Tool
from parley.agent.tools.clarify import clarify
from parley.agent.tools.delegate import delegate_task
from parley.agent.tools.messages import send_message
from parley.agent.tools.schedule import schedule
from parley.agent.tools.todo import todo
from parley.agent.tools.transcripts import session_search
from tests.agent.tools.lent import SmallHands, use

SMALLEST: list[tuple[Tool[Any], dict[str, Any]]] = [
    (todo, {}),
    (schedule, {"action": "list"}),
    (send_message, {"text": "hello"}),
    (session_search, {"query": "cake"}),
    (clarify, {"question": "Which one?"}),
    (delegate_task, {"goal": "count"}),
]
ALL = [tool for tool, _ in SMALLEST]
each = pytest.mark.parametrize("tool", ALL, ids=lambda tool: tool.name)
each_call = pytest.mark.parametrize(
    ("tool", "arguments"), SMALLEST, ids=[tool.name for tool in ALL]
)


@each_call
async def test_it_works_with_as_little_as_it_needs(
    tool: Tool[Any], arguments: dict[str, Any]
) -> None:
    assert (await use(tool, SmallHands(), **arguments)).ok


@each_call
async def test_without_a_gateway_it_says_so(tool: Tool[Any], arguments: dict[str, Any]) -> None:
    result = await use(tool, None, **arguments)
    assert not result.ok
    assert "running gateway" in result.text


@each_call
async def test_an_argument_nobody_knows_is_named(
    tool: Tool[Any], arguments: dict[str, Any]
) -> None:
    result = await use(tool, SmallHands(), nonsense=1, **arguments)
    assert not result.ok
    assert "`nonsense`" in result.text


@each_call
async def test_text_that_is_no_unicode_is_refused(
    tool: Tool[Any], arguments: dict[str, Any]
) -> None:
    field = next((name for name, value in arguments.items() if isinstance(value, str)), "items")
    broken = {field: "\ud800"} if field != "items" else {"items": [{"text": "\ud800"}]}
    result = await use(tool, SmallHands(), **(arguments | broken))
    assert not result.ok


@each
def test_a_call_may_be_made_again_after_a_restart(tool: Tool[Any]) -> None:
    assert tool.safe_to_repeat


@each
def test_its_schema_is_one_plain_object(tool: Tool[Any]) -> None:
    schema = tool.spec.parameters
    told = json.dumps(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    for clutter in ("$ref", "$defs", "title", "anyOf", "null"):
        assert clutter not in told


@pytest.mark.parametrize(
    ("tool", "required"),
    [
        (todo, None),
        (schedule, ["action"]),
        (send_message, ["text"]),
        (session_search, ["query"]),
        (clarify, ["question"]),
        (delegate_task, ["goal"]),
    ],
)
def test_the_model_is_told_what_must_be_given(tool: Tool[Any], required: list[str] | None) -> None:
    assert tool.spec.parameters.get("required") == required


def test_the_model_is_told_the_shape_of_a_list_item() -> None:
    item = todo.spec.parameters["properties"]["items"]["items"]
    assert item["properties"]["state"]["enum"] == ["open", "doing", "done"]
    assert item["required"] == ["text"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (todo, {"items": None}),
        (schedule, {"action": "list", "text": None, "at": None, "id": None}),
        (send_message, {"text": "hello", "to": None}),
        (clarify, {"question": "Which?", "choices": None}),
        (delegate_task, {"goal": "count", "tools": None}),
    ],
)
async def test_a_model_may_write_null_for_what_it_leaves_out(
    tool: Tool[Any], arguments: dict[str, Any]
) -> None:
    assert (await use(tool, SmallHands(), **arguments)).ok


def test_all_of_them_together_are_told_in_few_words() -> None:
    sizes = {tool.name: len(json.dumps(tool.spec.to_dict())) for tool in ALL}
    assert sum(sizes.values()) <= 2_600, sizes
