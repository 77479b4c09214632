"""The contract of tools: what the model is told of them, and how they are chosen."""

from __future__ import annotations

import json

import pytest

from parley.agent.tools import TOOLS, pick_tools
from parley.config.settings import AgentSettings
from parley.protocol import ParleyError, ToolCall
from tests.agent.builders import context


@pytest.mark.parametrize("name", TOOLS)
def test_a_tools_schema_is_a_plain_object(name: str) -> None:
    spec = TOOLS[name].spec
    assert spec.name == name
    assert spec.description
    assert spec.parameters["type"] == "object"
    assert spec.parameters["additionalProperties"] is False
    assert "title" not in json.dumps(spec.parameters)
    assert "$ref" not in json.dumps(spec.parameters)


def test_the_model_is_told_what_read_file_needs() -> None:
    spec = TOOLS["read_file"].spec
    assert spec.parameters["required"] == ["path"]
    assert spec.parameters["properties"]["lines"]["maximum"] == 5000


@pytest.mark.parametrize("name", TOOLS)
async def test_an_argument_nobody_knows_is_named(name: str) -> None:
    result = await TOOLS[name].run(ToolCall("c1", name, {"nonsense": 1}), context())
    assert not result.ok
    assert "`nonsense`" in result.text


def test_tools_are_picked_in_a_stable_order() -> None:
    assert list(pick_tools(["read_file", "now", "now"])) == ["now", "read_file"]
    assert pick_tools([]) == {}
    assert pick_tools(AgentSettings().tools) == TOOLS


def test_a_tool_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(ParleyError, match=r"no tool `read_fil` .* did you mean `read_file`\?"):
        pick_tools(["read_fil"])
