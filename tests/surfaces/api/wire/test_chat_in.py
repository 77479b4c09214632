"""What a chat completion may ask for, and what it is told when it may not."""

from __future__ import annotations

from typing import Any

import pytest

from parley.protocol import ChatMessage, ToolCall, ToolSpec, Wishes
from parley.surfaces.api.wire import BadRequest
from parley.surfaces.api.wire.chat_in import read_chat
from parley.surfaces.api.wire.parsed import ParsedRequest
from tests.surfaces.api.wire.builders import HI, PNG, Kept, a_tool, data_url, user

CALLS: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"a":1}'}},
        {"id": "c2", "type": "function", "function": {"name": "time", "arguments": ""}},
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
FUNCTION = {"type": "function", "function": a_tool()}


def read(*messages: object, continued: bool = False, **more: object) -> ParsedRequest:
    body = {"messages": list(messages) or [HI], **more}
    return read_chat(body, Kept(), continued=continued)


def refused(*messages: object, continued: bool = False, **more: object) -> BadRequest:
    with pytest.raises(BadRequest) as found:
        read(*messages, continued=continued, **more)
    error = found.value
    assert error.message.endswith(".")
    assert str(error) == error.message
    return error


def test_the_least_that_is_a_request() -> None:
    asked = read(HI)
    assert asked.messages == (ChatMessage("user", "hi"),)
    assert (asked.model, asked.instructions, asked.tools) == (None, "", ())
    assert asked.wishes == Wishes()
    assert (asked.stream, asked.include_usage, asked.store) == (False, False, False)
    assert asked.text == "hi"


def test_everything_a_request_may_hold() -> None:
    schema = {"name": "w", "strict": True, "schema": {"type": "object"}}
    asked = read(
        HI,
        model="coder",
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
        max_tokens=20,
        max_completion_tokens=10,
        temperature=1,
        top_p=0.5,
        seed=3,
        stop=["a", "b"],
        tools=[FUNCTION],
        tool_choice="required",
        parallel_tool_calls=False,
        response_format={"type": "json_schema", "json_schema": schema},
        user="ann",
        metadata={"a": "b"},
        store=True,
        n=1,
        logprobs=False,
        modalities=["text"],
        reasoning_effort="low",
        something_new={"a": [1]},
    )
    assert asked.model == "coder"
    assert (asked.stream, asked.include_usage, asked.store) == (True, True, True)
    assert asked.tools == (ToolSpec("weather", "The weather.", a_tool()["parameters"]),)
    assert asked.wishes == Wishes(
        max_output_tokens=10,
        reasoning_effort="low",
        temperature=1.0,
        top_p=0.5,
        seed=3,
        stop=("a", "b"),
        tool_choice="required",
        parallel_tool_calls=False,
        response_format={"type": "json_schema", "json_schema": schema},
    )
    assert (asked.user, asked.metadata) == ("ann", {"a": "b"})


def test_a_field_that_is_null_is_as_if_it_were_not_there() -> None:
    fields = ["model", "stream", "stop", "tools", "tool_choice", "metadata", "n", "audio", "seed"]
    nulls: dict[str, Any] = dict.fromkeys(fields)
    assert read(HI, **nulls) == read(HI)


def test_system_and_developer_messages_are_the_instructions_in_order() -> None:
    parts = [{"type": "text", "text": "two"}, {"type": "text", "text": "lines"}]
    asked = read(
        {"role": "system", "content": "One."},
        HI,
        {"role": "developer", "content": parts},
        {"role": "system", "content": " "},
    )
    assert asked.instructions == "One.\n\ntwo\nlines"
    assert asked.messages == (ChatMessage("user", "hi"),)


def test_a_conversation_with_tools() -> None:
    asked = read(HI, CALLS, RESULT, {**RESULT, "tool_call_id": "c2"})
    weather, time = ToolCall("c1", "weather", {"a": 1}), ToolCall("c2", "time")
    assert asked.messages[1:] == (
        ChatMessage("assistant", tool_calls=(weather, time)),
        ChatMessage("tool", "rain", tool_call_id="c1", tool_name="weather"),
        ChatMessage("tool", "rain", tool_call_id="c2", tool_name="time"),
    )
    assert asked.text == "hi"


def test_the_old_form_of_calls_is_understood_in_a_history() -> None:
    call = {"name": "weather", "arguments": '{"a":1}'}
    asked = read(
        HI,
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "weather", "content": "rain"},
    )
    said, result = asked.messages[1:]
    assert [(call.name, call.arguments) for call in said.tool_calls] == [("weather", {"a": 1})]
    assert (result.role, result.tool_call_id) == ("tool", said.tool_calls[0].id)
    assert refused(HI, {"role": "function", "name": "weather", "content": "x"}).param == (
        "messages[1]"
    )


def test_what_the_official_client_gives_back_of_a_reply_is_taken() -> None:
    from openai.types.chat import ChatCompletionMessage

    from parley.protocol import Final
    from parley.surfaces.api.wire.chat_out import chat_completion

    call = ToolCall("c1", "weather", {"city": "Bern"})
    said = chat_completion("c", 1, "m", Final("I look.", calls=(call,)), None)
    message = ChatCompletionMessage.model_validate(said["choices"][0]["message"])
    asked = read(HI, message.model_dump(), RESULT)
    assert asked.messages[1] == ChatMessage("assistant", "I look.", tool_calls=(call,))


def test_arguments_that_are_no_json_are_kept_as_they_are() -> None:
    broken = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{oops"}}
    asked = read(HI, {"role": "assistant", "tool_calls": [broken]}, RESULT)
    assert asked.messages[1].tool_calls[0].arguments == {"__malformed__": "{oops"}


def test_a_refusal_is_what_the_assistant_said() -> None:
    asked = read(HI, {"role": "assistant", "refusal": "No."}, HI)
    assert asked.messages[1] == ChatMessage("assistant", "No.")


@pytest.mark.parametrize(
    ("choice", "mode", "only", "offered"),
    [
        ("none", "none", None, ["a", "b"]),
        ("auto", "auto", None, ["a", "b"]),
        ({"type": "function", "function": {"name": "b"}}, None, "b", ["a", "b"]),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "b"}}],
                },
            },
            "required",
            None,
            ["b"],
        ),
    ],
)
def test_every_form_of_tool_choice(
    choice: Any, mode: str | None, only: str | None, offered: list[str]
) -> None:
    tools = [{"type": "function", "function": a_tool(name)} for name in ("a", "b")]
    asked = read(HI, tools=tools, tool_choice=choice)
    assert (asked.wishes.tool_choice, asked.wishes.tool) == (mode, only)
    assert [tool.name for tool in asked.tools] == offered


def test_a_tool_without_a_schema_takes_nothing() -> None:
    asked = read(HI, tools=[{"type": "function", "function": {"name": "now"}}])
    assert asked.tools == (ToolSpec("now", "", {"type": "object", "properties": {}}),)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "alloy", "format": "mp3"}),
        ("functions", [a_tool()]),
        ("function_call", "auto"),
        ("web_search_options", {}),
    ],
)
def test_what_would_change_the_reply_and_cannot_be_done_is_refused(field: str, value: Any) -> None:
    error = refused(HI, **{field: value})
    assert (error.param, error.code) == (field, "unsupported_parameter")


@pytest.mark.parametrize(
    ("more", "param", "words"),
    [
        ({"temperature": 2.1}, "temperature", "at most 2"),
        ({"temperature": "1"}, "temperature", "a number"),
        ({"top_p": -1}, "top_p", "at least 0"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": True}, "max_tokens", "a whole number"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"stop": ["a"] * 17}, "stop", "16 entries"),
        ({"stop": 1}, "stop", "a string or a list"),
        ({"model": 1}, "model", "a string"),
        ({"metadata": {"a": 1}}, "metadata.a", "a string"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "16 entries"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools[1]", "two tools are called weather"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type", "of the type function"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "is missing"),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name",
            "letters, digits",
        ),
        (
            {"tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
            "names no tool",
        ),
        ({"tool_choice": {"type": "custom"}}, "tool_choice.type", "`allowed_tools`"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice", "needs a `mode`"),
        ({"tool_choice": "any"}, "tool_choice", "`required`"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "is missing",
        ),
        ({"response_format": {"type": "xml"}}, "response_format.type", "`json_object`"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_must_be(
    more: dict[str, Any], param: str, words: str
) -> None:
    error = refused(HI, **more)
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(
    ("messages", "param", "words"),
    [
        ([{"role": "system", "content": "x"}], "messages", "at least one message"),
        ([HI, {"role": "assistant", "content": "x"}], "messages", "of a user or a tool"),
        ([user(" ")], "messages", "is empty"),
        ([user(None)], "messages[0].content", "is missing"),
        ([user(5)], "messages[0].content", "a string or a list"),
        ([5], "messages[0]", "an object"),
        ([{"content": "x"}], "messages[0].role", "is missing"),
        ([HI, {"role": "robot", "content": "x"}], "messages[1].role", "`developer`"),
        ([HI, RESULT], "messages[1]", "answers no call"),
        ([HI, CALLS, RESULT, RESULT], "messages[3]", "answers no call"),
        ([HI, {"role": "tool", "content": "x"}], "messages[1].tool_call_id", "is missing"),
        (
            [HI, {"role": "assistant", "tool_calls": [CALLS["tool_calls"][0]] * 2}, RESULT],
            "messages[1].content",
            "the same id",
        ),
        (
            [HI, {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}, RESULT],
            "messages[1].tool_calls[0].type",
            "only calls of functions",
        ),
        (
            [
                {"role": "system", "content": [{"type": "image_url", "image_url": "https://a/b"}]},
                HI,
            ],
            "messages[0].content",
            "only hold text",
        ),
    ],
)
def test_a_wrong_message_is_named(messages: list[Any], param: str, words: str) -> None:
    error = refused(*messages)
    assert error.param == param
    assert words in error.message


def test_there_must_be_messages() -> None:
    bodies: list[object] = [{}, {"messages": []}, {"messages": "hi"}, {"messages": {}}, [], "x"]
    for body in bodies:
        with pytest.raises(BadRequest):
            read_chat(body, Kept())


def test_in_a_stored_conversation_a_result_may_answer_a_call_of_then() -> None:
    asked = read(RESULT, continued=True)
    assert asked.messages == (ChatMessage("tool", "rain", tool_call_id="c1"),)
    assert asked.text == ""


def test_a_server_may_give_the_same_call_id_in_every_turn() -> None:
    asked = read(HI, CALLS, RESULT, HI, CALLS, RESULT)
    assert [message.tool_name for message in asked.messages if message.role == "tool"] == [
        "weather",
        "weather",
    ]


def test_nothing_is_kept_of_a_request_that_is_refused() -> None:
    kept = Kept()
    picture = {"type": "image_url", "image_url": {"url": data_url(PNG)}}
    with pytest.raises(BadRequest):
        read_chat({"messages": [user([picture]), RESULT]}, kept)
    assert kept.files == []


def test_text_that_no_database_takes_is_mended() -> None:
    asked = read(user("a\ud800b\0c\ud83d\ude00"), metadata={"k\0": "v\udfff"})
    assert asked.text == "a\ufffdb\ufffdc😀"
    assert asked.metadata == {"k\ufffd": "v\ufffd"}
