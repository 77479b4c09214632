"""Tools as a schema that holds the model to them, and a history it can follow."""

from __future__ import annotations

import json
from dataclasses import replace

from parley.agent.providers.base import ModelRequest, ToolSpec
from parley.agent.providers.local.history import wire_messages
from parley.agent.providers.local.schema import (
    describe_tools,
    read_call,
    union_schema,
    written_call,
    written_reply,
)
from parley.protocol import ChatMessage, ToolCall, ToolExample

NOW = ToolSpec(
    "now",
    "The current date\n  and time.",
    {"type": "object", "properties": {"timezone": {"type": "string"}}},
)
READ_FILE = ToolSpec(
    "read_file",
    "Read a text file of the workspace.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "start": {"type": "integer"}},
        "required": ["path"],
    },
)
ASKED = ChatMessage("user", "What time is it, and what is in a.txt?")
CALLED = ChatMessage(
    "assistant",
    "Let me look.",
    tool_calls=(ToolCall("1", "now"), ToolCall("2", "read_file", {"path": "ä.txt"})),
)
RESULTS = (
    ChatMessage("tool", "noon", tool_call_id="1", tool_name="now"),
    ChatMessage("tool", "milk", tool_call_id="2", tool_name="read_file"),
)


def test_every_tool_and_the_reply_are_options() -> None:
    options = union_schema([NOW, READ_FILE])["anyOf"]
    names = [option["properties"]["tool"]["const"] for option in options]
    assert names == ["reply", "now", "read_file"]
    assert options[2]["properties"]["args"]["required"] == ["path"]


def test_a_tool_called_reply_does_not_take_the_place_of_the_reply() -> None:
    other = ToolSpec("reply", "Another.", {"type": "object", "properties": {}})
    assert len(union_schema([other])["anyOf"]) == 1


def test_what_no_grammar_can_hold_is_left_to_the_tool() -> None:
    wild = ToolSpec(
        "wild",
        "",
        {
            "type": "object",
            "properties": {
                "a": {"$ref": "#/$defs/A"},
                "b": {"type": "string", "pattern": "^(?=x)", "format": "uri"},
                "c": {"oneOf": [{"type": "null"}, {"type": "array", "items": {"enum": [1, 2]}}]},
            },
            "required": ["a", "gone"],
            "$defs": {"A": {"type": "string"}},
        },
    )
    args = union_schema([wild])["anyOf"][1]["properties"]["args"]
    assert args["properties"] == {
        "a": {},
        "b": {"type": "string"},
        "c": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"enum": [1, 2]}}]},
    }
    assert args["required"] == ["a"]


def test_the_description_names_tools_on_one_line_each_with_answers_that_fit_the_schema() -> None:
    text = describe_tools([NOW, READ_FILE])
    assert "- now(timezone?): The current date and time.\n" in text
    assert "- read_file(path, start?): Read a text file" in text
    examples = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    tools = [example["tool"] for example in examples]
    assert tools[-2:] == ["now", "read_file"]
    assert set(tools[:-2]) == {"reply"}


def test_worked_examples_are_shown_with_what_a_person_says() -> None:
    worked = replace(READ_FILE, example=ToolExample("What is in a.txt?", {"path": "a.txt"}))
    text = describe_tools([NOW, worked])
    assert 'Person: What is in a.txt?\n{"tool": "read_file", "args": {"path": "a.txt"}}' in text
    assert '"tool": "now"' not in text


def test_a_call_is_read_as_it_was_written() -> None:
    call = ToolCall("", "read_file", {"path": 'a "b" 😀', "start": 3})
    found = read_call(written_call(call))
    assert found is not None
    assert (found.name, found.arguments) == (call.name, call.arguments)
    assert found.id


def test_a_reply_and_half_a_call_are_no_calls() -> None:
    assert read_call(written_reply("hello")) is None
    assert read_call('{"tool": "now", "ar') is None
    assert read_call('["tool"]') is None


def test_past_calls_stand_beside_their_results() -> None:
    request = ModelRequest("Be kind.", (ASKED, CALLED, *RESULTS), (NOW, READ_FILE))
    system, *said = wire_messages(request, with_tools=True)
    assert system["content"].startswith("Answer with one JSON object")
    assert system["content"].endswith("\n\nBe kind.")
    assert [(m["role"], m["content"]) for m in said] == [
        ("user", ASKED.text),
        ("assistant", '{"tool": "now", "args": {}}'),
        ("user", "Result of now:\nnoon"),
        ("assistant", '{"tool": "read_file", "args": {"path": "ä.txt"}}'),
        ("user", "Result of read_file:\nmilk"),
    ]


def test_what_was_said_is_rendered_the_same_when_more_is_said() -> None:
    history = (ASKED, CALLED, *RESULTS, ChatMessage("assistant", "Noon, and milk."))
    more = (*history, ChatMessage("user", "Thanks"))
    before = wire_messages(ModelRequest("s", history, (NOW,)), with_tools=True)
    after = wire_messages(ModelRequest("s", more, (NOW,)), with_tools=True)
    assert after[: len(before)] == before


def test_a_call_without_a_result_says_so() -> None:
    messages = wire_messages(ModelRequest("", (ASKED, CALLED), (NOW,)), with_tools=True)
    assert messages[-1]["content"] == "Result of read_file:\n(unknown)"


def test_a_model_without_tools_sees_plain_talk_in_which_the_roles_take_turns() -> None:
    history = (ASKED, CALLED, *RESULTS, ChatMessage("assistant", "Noon."), ASKED, ASKED)
    messages = wire_messages(ModelRequest("", history, (NOW,)), with_tools=False)
    assert [m["role"] for m in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"] == "Let me look.\n\nNoon."
