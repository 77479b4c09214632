"""Names, schemas and words of others, made safe."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, Tool

from parley.agent.foreign import one_line, shown_exactly
from parley.agent.mcp import McpLimits
from parley.agent.mcp.offers import make_tool, read_offers, told_name
from parley.agent.mcp.results import result_text
from parley.agent.question_text import shown_name
from parley.agent.tools import ToolError
from parley.agent.tools.base import Prepared
from parley.config.hands import McpServerSettings
from parley.protocol import ToolCall
from tests.agent.shown_text import read_arguments

NAMES = st.one_of(st.text(alphabet="ab_-", max_size=6), st.text(max_size=80))


@given(st.lists(st.tuples(NAMES, NAMES), max_size=12, unique=True))
def test_no_two_tools_share_a_name_and_every_name_is_safe(pairs: list[tuple[str, str]]) -> None:
    told = [told_name(server, tool) for server, tool in pairs]
    assert len(set(told)) == len(pairs)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in told)


@pytest.mark.parametrize(
    ("server", "tool", "told"),
    [("mail", "send", "mail__send"), ("my-mail", "a__b", "my-mail__a__b"), ("a", "_b", "a___b")],
)
def test_an_ordinary_name_stays_as_it_is(server: str, tool: str, told: str) -> None:
    assert told_name(server, tool) == told


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "title", "$ref", "x"]), JSON))
def test_any_schema_is_told_as_an_object_or_left_out(schema: dict[str, Any]) -> None:
    tool = Tool.model_construct(name="t", description="d", input_schema=schema, annotations=None)
    good, bad = read_offers([tool], [], McpLimits())
    assert len(good) + len(bad) == 1
    for offer in good:
        assert offer.schema["type"] == "object"
        assert isinstance(offer.schema["properties"], dict)
        assert len(json.dumps(offer.schema)) <= 16_100


def test_a_schema_without_end_or_bottom_is_left_out() -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"a": deep}}
    tool = Tool(name="deep", input_schema=deep)
    assert read_offers([tool], [], McpLimits()) == ((), ("deep",))


def test_descriptions_in_a_schema_are_cleaned_and_its_values_are_not() -> None:
    schema = {
        "type": "object",
        "title": "T",
        "properties": {"description": {"type": "string", "description": "a\x1b[0m\u202eb"}},
    }
    (offer,), _ = read_offers([Tool(name="t", input_schema=schema)], [], McpLimits())
    assert offer.schema == {
        "type": "object",
        "properties": {"description": {"type": "string", "description": "a [0m b"}},
    }


@given(st.text(), st.integers(min_value=1, max_value=40))
def test_foreign_text_is_one_bounded_line(text: str, longest: int) -> None:
    line = one_line(text, longest=longest)
    assert len(line) <= longest
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", line)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3))
def test_what_is_shown_exactly_says_the_same(value: dict[str, str]) -> None:
    shown = shown_exactly(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", shown)


@pytest.mark.parametrize(
    "name",
    [
        "look` of the MCP server `docs` with `{}",
        "a\n\nMay I look",
        "a\u202eb",
        "a\x1b[2Kb",
        "a\u034fb",
    ],
)
def test_the_name_of_a_tool_cannot_change_what_is_asked(name: str) -> None:
    async def call(tool: str, arguments: dict[str, Any]) -> str:
        return ""

    schema = {"type": "object"}
    (offer,), _ = read_offers([Tool(name=name, input_schema=schema)], [], McpLimits())
    made = make_tool("mail", offer, McpServerSettings(command="x"), call)
    context: Any = None
    prepared = made.prepare(ToolCall("c", made.name, {"to": "`*you*`"}), context)
    assert isinstance(prepared, Prepared)
    assert prepared.wanted is not None
    what = prepared.wanted.what
    sentence = what.partition("\n")[0]
    assert sentence.isprintable()
    assert "\u034f" not in what
    spans = re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", sentence)  # as Markdown reads it
    plain = [text.strip() for _, text in spans]
    assert plain == [shown_name(name).strip("` "), "mail"]
    assert "\u202e" not in what
    assert read_arguments(what) == {"to": "`*you*`"}


def of(*content: dict[str, Any], **more: Any) -> CallToolResult:
    return CallToolResult.model_validate({"content": list(content), **more})


def test_what_is_no_text_is_named_and_never_shown() -> None:
    data = "QUJD" * 5_000
    link = {"type": "resource_link", "name": "n", "uri": "file:///a.pdf", "mimeType": "text/pdf"}
    blob = {"type": "resource", "resource": {"uri": "file:///b", "blob": data}}
    text = {"type": "resource", "resource": {"uri": "file:///c", "text": "see"}}
    audio = {"type": "audio", "data": data, "mimeType": "audio/wav"}
    told = result_text(of(link, blob, text, audio), tool="t")
    assert told == (
        "[link file:///a.pdf text/pdf]\n[file file:///b, 15 kB, not shown]\n"
        "[file file:///c]\nsee\n[audio audio/wav, 15 kB, not shown]"
    )


def test_a_result_without_text_is_its_structure() -> None:
    assert result_text(of(structuredContent={"ä": 1}), tool="t") == '{"ä": 1}'
    assert result_text(of(), tool="t") == "(no result)"


def test_an_error_is_raised_in_bounds() -> None:
    with pytest.raises(ToolError, match="t failed and did not say why"):
        result_text(of(isError=True), tool="t")
    with pytest.raises(ToolError) as raised:
        result_text(of({"type": "text", "text": "x" * 100_000}, isError=True), tool="t")
    assert len(str(raised.value)) <= 4_001
