"""What a program wishes for, of the model on this machine: what it can do, it really does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from parley.agent.providers.base import ModelRequest, ProviderError, ToolSpec
from parley.agent.providers.local.options import local_options
from parley.agent.providers.local.provider import LocalProvider
from parley.agent.providers.local.schema import read_reply, union_schema
from parley.config.settings import LocalModelSettings
from parley.protocol import Attachment, ChatMessage, Wishes
from tests.agent.providers.local.watching import PARIS, answer

_together = pytest.mark.asyncio(loop_scope="module")

NOW = ToolSpec("now", "Tell the time.", {"type": "object", "properties": {}})
LOOK = ToolSpec("look", "Look around.", {"type": "object", "properties": {}})
CITY = {
    "$defs": {"Size": {"type": "string", "enum": ["small", "large"]}},
    "type": "object",
    "properties": {
        "capital": {"type": "string", "maxLength": 12},
        "size": {"$ref": "#/$defs/Size"},
    },
    "required": ["capital", "size"],
    "additionalProperties": False,
}
CITY_FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}


def wishing(*, tools: tuple[ToolSpec, ...] = (), **wishes: Any) -> ModelRequest:
    return replace(PARIS, tools=tools, wishes=Wishes(**wishes))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def with_tools(smollm2: LocalModelSettings) -> AsyncIterator[LocalProvider]:
    made = LocalProvider(smollm2.model_copy(update={"tools": "on"}))
    yield made
    await made.close()


@_together
async def test_a_stop_text_ends_the_reply_before_it(shared_provider: LocalProvider) -> None:
    _, reply = await answer(shared_provider, wishing(stop=("Paris",)))
    assert "Paris" not in reply.text
    assert reply.complete


@_together
async def test_the_same_seed_gives_the_same_reply_and_another_one_another(
    shared_provider: LocalProvider,
) -> None:
    replies = [
        (await answer(shared_provider, wishing(temperature=1.5, seed=seed)))[1].text
        for seed in (7, 7, 8)
    ]
    assert replies[0] == replies[1] != replies[2]


@_together
async def test_a_small_top_p_leaves_only_the_likeliest_words(
    shared_provider: LocalProvider,
) -> None:
    _, usual = await answer(shared_provider, PARIS)
    _, narrow = await answer(shared_provider, wishing(temperature=1.5, seed=7, top_p=0.001))
    assert narrow.text == usual.text


@_together
async def test_a_reply_keeps_to_its_schema(shared_provider: LocalProvider) -> None:
    deltas, reply = await answer(shared_provider, wishing(response_format=CITY_FORMAT))
    assert set(json.loads(reply.text)) == {"capital", "size"}
    assert len(deltas) > 1


@_together
async def test_a_schema_that_makes_no_grammar_is_not_supported(
    shared_provider: LocalProvider,
) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#/none"}}}
    with pytest.raises(ProviderError, match="response_format") as caught:
        await answer(shared_provider, wishing(response_format=wanted))
    assert caught.value.kind == "unsupported"


@_together
async def test_a_text_file_is_read_to_the_model(
    shared_provider: LocalProvider, tmp_path: Path
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("The secret word is Banana.")
    file = Attachment("note.txt", "text/plain", str(note), 26)
    question = ChatMessage("user", "What is the secret word?", attachments=(file,))
    _, reply = await answer(shared_provider, replace(PARIS, messages=(question,)))
    assert "Banana" in reply.text


@_together
async def test_the_one_tool_that_must_be_called_is_called(with_tools: LocalProvider) -> None:
    _, reply = await answer(with_tools, wishing(tools=(NOW, LOOK), tool="look"))
    assert [call.name for call in reply.tool_calls] == ["look"]


@_together
async def test_no_tool_is_called_when_none_is_wanted(with_tools: LocalProvider) -> None:
    request = wishing(tools=(NOW,), tool_choice="none")
    _, reply = await answer(with_tools, replace(request, max_output_tokens=80))
    assert reply.text
    assert not reply.tool_calls


@_together
async def test_a_reply_keeps_to_its_schema_beside_tools(with_tools: LocalProvider) -> None:
    request = wishing(tools=(NOW,), tool_choice="none", response_format=CITY_FORMAT)
    deltas, reply = await answer(with_tools, replace(request, max_output_tokens=200))
    assert set(json.loads(reply.text)) == {"capital", "size"}
    assert "".join(deltas) == reply.text


# ── without weights ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wishes", "with_tools", "kind", "wish"),
    [
        ({"stop": ("x",)}, True, "unsupported", "stop"),
        ({"tool_choice": "required"}, False, "unsupported", "tool_choice"),
        ({"tool": "now"}, False, "unsupported", "tool_choice"),
        ({"tool": "fly"}, True, "refused", "fly"),
        ({"tool": "reply"}, True, "unsupported", "tool_choice"),
    ],
)
def test_what_it_cannot_do_is_said(
    wishes: dict[str, Any], with_tools: bool, kind: str, wish: str
) -> None:
    ours = ToolSpec("reply", "", {"type": "object"})
    with pytest.raises(ProviderError, match=wish) as caught:
        local_options(wishing(tools=(NOW, ours), **wishes), with_tools=with_tools)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("wishes", "offered"),
    [
        ({}, ["reply", "now", "look"]),
        ({"tool_choice": "auto"}, ["reply", "now", "look"]),
        ({"tool_choice": "required"}, ["now", "look"]),
        ({"tool_choice": "none"}, ["reply"]),
        ({"tool": "look"}, ["look"]),
    ],
)
def test_the_choice_of_tools_is_a_choice_of_answers(
    wishes: dict[str, Any], offered: list[str]
) -> None:
    options = local_options(wishing(tools=(NOW, LOOK), **wishes), with_tools=True)
    answers = options["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [one["properties"]["tool"]["const"] for one in answers] == offered


def test_without_wishes_nothing_is_asked_of_the_server() -> None:
    assert local_options(PARIS, with_tools=False) == {}
    assert local_options(wishing(response_format={"type": "text"}), with_tools=False) == {}


def test_definitions_stay_where_references_look_for_them() -> None:
    schema = union_schema([NOW], text=CITY)
    assert schema["$defs"] == CITY["$defs"]
    assert "$defs" not in schema["anyOf"][0]["properties"]["args"]["properties"]["text"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"tool": "reply", "args": {"text": {"a": "ü"}}}', '{"a": "ü"}'),
        ('{ "tool":"reply" ,\n"args" : {"text" :{"a": "b', '{"a": "b'),
        ('{"tool": "now", "args": {', ""),
    ],
)
def test_json_in_place_of_text_is_read_as_far_as_it_goes(written: str, read: str) -> None:
    assert read_reply(written) == read
