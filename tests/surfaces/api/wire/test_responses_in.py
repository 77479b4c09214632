"""What a response or a run may ask for, and what it is told when it may not."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response

from parley.protocol import ChatMessage, Final, ToolCall, ToolSpec, Wishes
from parley.surfaces.api.wire import BadRequest
from parley.surfaces.api.wire.parsed import ParsedRequest
from parley.surfaces.api.wire.responses_in import read_response
from parley.surfaces.api.wire.responses_out import output_items, response_object
from parley.surfaces.api.wire.runs import read_approval, read_run
from tests.surfaces.api.wire.builders import HI, PDF, Kept, a_tool, data_url

CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"a":1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


def read(input: Any = "hi", *, continued: bool = False, **more: object) -> ParsedRequest:
    return read_response({"input": input, **more}, Kept(), continued=continued)


def refused(input: Any = "hi", **more: Any) -> BadRequest:
    with pytest.raises(BadRequest) as found:
        read(input, **more)
    return found.value


def test_a_text_is_a_request() -> None:
    asked = read("hi")
    assert asked.messages == (ChatMessage("user", "hi"),)
    assert (asked.store, asked.stream, asked.previous_response_id) == (True, False, None)
    assert read("hi", store=False).store is False


def test_everything_a_request_may_hold() -> None:
    schema = {"type": "json_schema", "name": "w", "schema": {"type": "object"}, "strict": True}
    asked = read(
        [{"role": "developer", "content": "Two."}, HI],
        model="coder",
        instructions="One.",
        stream=True,
        previous_response_id="resp_1",
        max_output_tokens=10,
        temperature=0.5,
        top_p=0.5,
        tools=[{"type": "function", "strict": True, **a_tool()}],
        tool_choice={"type": "function", "name": "weather"},
        parallel_tool_calls=True,
        text={"format": schema, "verbosity": "low"},
        truncation="auto",
        include=["reasoning.encrypted_content"],
        reasoning={"effort": "low"},
        background=False,
        metadata={"a": "b"},
        user="ann",
    )
    assert (asked.model, asked.instructions, asked.stream) == ("coder", "One.\n\nTwo.", True)
    assert asked.previous_response_id == "resp_1"
    assert asked.tools == (ToolSpec("weather", "The weather.", a_tool()["parameters"], True),)
    assert asked.wishes == Wishes(
        max_output_tokens=10,
        reasoning_effort="low",
        temperature=0.5,
        top_p=0.5,
        tool="weather",
        parallel_tool_calls=True,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "w", "schema": {"type": "object"}, "strict": True},
        },
    )


def test_calls_belong_to_the_reply_before_them() -> None:
    asked = read([HI, {"role": "assistant", "content": "I look."}, CALL, OUTPUT])
    assert asked.messages[1:] == (
        ChatMessage("assistant", "I look.", tool_calls=(ToolCall("c1", "weather", {"a": 1}),)),
        ChatMessage("tool", "rain", tool_call_id="c1", tool_name="weather"),
    )
    alone = read([HI, CALL, {**CALL, "call_id": "c2"}, OUTPUT, {**OUTPUT, "call_id": "c2"}])
    assert [len(message.tool_calls) for message in alone.messages] == [0, 2, 0, 0]


def test_what_the_official_client_gives_back_of_a_response_is_taken() -> None:
    call = ToolCall("c1", "weather", {"city": "Bern"})
    output = output_items(Final("I look.", calls=(call,)))
    said = response_object(
        "resp_1", 1, "m", ParsedRequest("m", ()), status="completed", output=output
    )
    items = [item.model_dump() for item in Response.model_validate(said).output]
    asked = read([HI, *items, {"type": "reasoning", "summary": []}, OUTPUT])
    assert asked.messages[1] == ChatMessage("assistant", "I look.", tool_calls=(call,))


def test_a_result_may_hold_files() -> None:
    file = {"type": "input_file", "filename": "a.pdf", "file_data": data_url(PDF)}
    asked = read([HI, CALL, {**OUTPUT, "output": [{"type": "input_text", "text": "x"}, file]}])
    assert (asked.messages[-1].text, asked.messages[-1].attachments[0].name) == ("x", "a.pdf")


def test_after_another_response_a_result_may_answer_a_call_of_then() -> None:
    assert refused([OUTPUT]).param == "input[0]"
    assert read([OUTPUT], previous_response_id="resp_1").messages[0].tool_call_id == "c1"
    assert read([OUTPUT], continued=True).messages[0].role == "tool"


def test_allowed_tools_in_the_form_of_responses() -> None:
    tools = [{"type": "function", **a_tool(name)} for name in ("a", "b")]
    allowed = [{"type": "function", "name": "a"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    asked = read(tools=tools, tool_choice=choice)
    assert ([tool.name for tool in asked.tools], asked.wishes.tool_choice) == (["a"], "auto")


@pytest.mark.parametrize(
    ("more", "param", "words"),
    [
        ({"background": True, "store": False}, "background", "`store`"),
        (
            {"conversation": "conv_1", "previous_response_id": "resp_1"},
            "conversation",
            "not both",
        ),
        ({"prompt": {"id": "p"}}, "prompt", "instructions"),
        ({"top_logprobs": 2}, "top_logprobs", "probabilities"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "web_search"),
        ({"tools": [{"type": "file_search"}]}, "tools[0].type", "file_search"),
        ({"tools": [{"type": "computer_use_preview"}]}, "tools[0].type", "computer_use_preview"),
        ({"tools": [{"type": "mcp"}]}, "tools[0].type", "mcp"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "is missing"),
        ({"tools": [{"type": "function", "name": "ä"}]}, "tools[0].name", "letters, digits"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.name", "is missing"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type", "`json_object`"),
        ({"input": 5}, "input", "a string or a list"),
        ({"input": ""}, "input", "is empty"),
        ({"input": []}, "input", "at least one message"),
        ({"input": [{"role": "user"}]}, "input[0].content", "is missing"),
        ({"input": [{"content": "x"}]}, "input[0].role", "is missing"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id", "is missing"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type", "web_search_call"),
        ({"input": [HI, {"type": "function_call"}]}, "input[1].name", "is missing"),
        (
            {"input": [CALL, {"type": "function_call_output", "call_id": "c1"}]},
            "input[1].output",
            "is missing",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    more: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(BadRequest) as found:
        read_response({"input": "hi", **more}, Kept())
    assert found.value.param == param
    assert words in found.value.message


# ── runs ──


def test_a_run_is_asked_for_like_a_response() -> None:
    asked = read_run({"input": "hi", "session_id": "s1", "instructions": "Brief."}, Kept())
    assert asked.messages == (ChatMessage("user", "hi"),)
    assert (asked.session_id, asked.instructions, asked.stream) == ("s1", "Brief.", False)


@pytest.mark.parametrize(
    ("more", "param"), [({"session_id": "../x"}, "session_id"), ({"stream": True}, "stream")]
)
def test_a_run_with_a_wrong_field_is_refused(more: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as found:
        read_run({"input": "hi", **more}, Kept())
    assert found.value.param == param


def test_an_approval_names_its_question_and_decides() -> None:
    read = read_approval({"approval_id": "a1", "decision": "deny"})
    assert (read.approval_id, read.decision) == ("a1", "deny")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"approval_id": "a1"}, "decision"),
        ({"approval_id": "a1", "decision": "maybe"}, "decision"),
        ({"decision": "deny"}, "approval_id"),
        ({"approval_id": "", "decision": "deny"}, "approval_id"),
    ],
)
def test_half_an_approval_is_refused(body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as found:
        read_approval(body)
    assert found.value.param == param
