"""Responses and their events as the official client reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent

from parley.protocol import Failed, Final, ToolCall, ToolSpec, Usage, Wishes
from parley.surfaces.api.wire.parsed import ParsedRequest
from parley.surfaces.api.wire.responses_events import ResponseEvents, ServerEvent
from parley.surfaces.api.wire.responses_out import (
    ResponseStatus,
    output_items,
    response_error,
    response_object,
)
from parley.surfaces.api.wire.streamed_text import StreamDiverged
from tests.surfaces.api.wire.reading import Canned, as_events, read_as

USAGE = Usage("p", "m", input_tokens=7, output_tokens=5, cached_tokens=2)
CALL = ToolCall("call_1", "weather", {"city": "Bern"})
PLAIN = ParsedRequest("default", ())
FULL = ParsedRequest(
    "default",
    (),
    instructions="Be brief.",
    tools=(ToolSpec("weather", "The weather.", {"type": "object"}),),
    wishes=Wishes(
        max_output_tokens=10,
        temperature=0.5,
        top_p=0.9,
        tool="weather",
        parallel_tool_calls=False,
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
    ),
    store=True,
    previous_response_id="resp_0",
    user="ann",
    metadata={"a": "b"},
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def events(request: ParsedRequest = PLAIN) -> ResponseEvents:
    begun = response_object("resp_1", 1700000000, "default", request, status="in_progress")
    return ResponseEvents(begun)


def read_events(sent: list[ServerEvent]) -> list[Any]:
    """Each is one the client knows; the numbers have no gap."""
    known: Any = ResponseStreamEvent
    read: list[Any] = [read_as(known, json.loads(event.data)) for event in sent]
    assert [event.sequence_number for event in read] == list(range(len(read)))
    assert [event.type for event in read] == [event.name for event in sent]
    assert all(b"\n" not in event.data for event in sent)
    return read


def texts(response: Response) -> list[tuple[str, str]]:
    return [
        (item.status, "".join(part.text for part in item.content if part.type == "output_text"))
        for item in response.output
        if item.type == "message"
    ]


# ── the object ──


@pytest.mark.parametrize("status", ["in_progress", "completed", "incomplete", "cancelled"])
@pytest.mark.parametrize("request_", [PLAIN, FULL])
def test_a_response_is_one_the_client_knows(
    status: ResponseStatus, request_: ParsedRequest
) -> None:
    output = output_items(Final("Hello.", calls=(CALL,)), steps=["I look.", " "])
    said = response_object(
        "resp_1", 1700000000, "default", request_, status=status, output=output, usage=USAGE
    )
    read = read_as(Response, json.loads(json.dumps(said)))
    assert read.status == status
    assert texts(read) == [("completed", "I look."), ("completed", "Hello.")]
    call = read.output[-1]
    assert call.type == "function_call"
    assert (call.call_id, call.name, call.arguments) == ("call_1", "weather", '{"city":"Bern"}')
    assert read.usage is not None
    assert read.usage.total_tokens == 12
    assert read.usage.input_tokens_details.cached_tokens == 2
    assert (read.incomplete_details is not None) == (status == "incomplete")


def test_a_response_says_what_was_asked_for() -> None:
    said = response_object("resp_1", 1, "default", FULL, status="in_progress")
    read = read_as(Response, said)
    assert (read.instructions, read.previous_response_id) == ("Be brief.", "resp_0")
    assert (read.max_output_tokens, read.temperature, read.top_p) == (10, 0.5, 0.9)
    assert (read.user, read.metadata) == ("ann", {"a": "b"})
    assert read.parallel_tool_calls is False
    assert said["tool_choice"] == {"type": "function", "name": "weather"}
    assert said["tools"][0]["name"] == "weather"
    assert said["text"]["format"] == {"type": "json_schema", "name": "a", "schema": {}}
    plain = response_object("resp_1", 1, "default", PLAIN, status="in_progress")
    assert (plain["tool_choice"], plain["text"]) == ("auto", {"format": {"type": "text"}})


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("rate_limited", "rate_limit_exceeded"),
        ("too_long", "invalid_prompt"),
        ("internal", "server_error"),
        ("anything", "server_error"),
    ],
)
def test_a_failure_has_a_code_the_client_knows(kind: str, code: str) -> None:
    error = response_error(Failed("The model is busy.", kind=kind))
    said = response_object("resp_1", 1, "default", PLAIN, status="failed", error=error)
    read = read_as(Response, said)
    assert read.error is not None
    assert (read.error.code, read.error.message) == (code, "The model is busy.")


def test_a_reply_without_words_or_calls_is_still_a_message() -> None:
    assert [item["type"] for item in output_items(Final(""))] == ["message"]
    assert [item["type"] for item in output_items(Final("", calls=(CALL,)))] == ["function_call"]


# ── the events ──


def test_a_streamed_reply_is_the_official_sequence() -> None:
    made = events(FULL)
    sent = made.start() + made.text("Hel") + made.text("lo.")
    sent += made.complete(Final("Hello."), USAGE, at=1700000001)
    read = read_events(sent)
    assert [event.type.removeprefix("response.") for event in read] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    whole = read[-1].response
    assert (whole.status, whole.output_text, whole.completed_at) == (
        "completed",
        "Hello.",
        1700000001,
    )
    assert whole.usage.total_tokens == 12
    assert whole.output[0].id == read[2].item.id == read[4].item_id


def test_what_was_never_streamed_comes_before_the_end() -> None:
    made = events()
    read = read_events(made.start() + made.complete(Final("Hello.")))
    deltas = [event.delta for event in read if event.type == "response.output_text.delta"]
    assert deltas == ["Hello."]
    assert read[-1].response.output_text == "Hello."


def test_the_rest_of_a_reply_comes_before_the_end() -> None:
    made = events()
    read = read_events(made.start() + made.text("Hel") + made.complete(Final("Hello.")))
    deltas = [event.delta for event in read if event.type == "response.output_text.delta"]
    assert deltas == ["Hel", "lo."]
    assert texts(read[-1].response) == [("completed", "Hello.")]


def test_each_step_is_a_message_of_its_own() -> None:
    made = events()
    sent = made.start() + made.step() + made.text("I look.") + made.step() + made.step()
    sent += made.text("It rains.") + made.complete(Final("It rains."))
    whole = read_events(sent)[-1].response
    assert texts(whole) == [("completed", "I look."), ("completed", "It rains.")]


def test_a_reply_whose_step_was_taken_is_not_said_again() -> None:
    made = events()
    sent = made.start() + made.text("I look. ") + made.step()
    sent += made.complete(Final("I look.", calls=(CALL,)))
    whole = read_events(sent)[-1].response
    assert [item.type for item in whole.output] == ["message", "function_call"]


def test_an_answer_that_begins_again_goes_on_where_it_was() -> None:
    made = events()
    sent = made.start() + made.begin_again() + made.text("Rig") + made.begin_again()
    sent += made.text("Ri") + made.text("ght") + made.complete(Final("Right"))
    read = read_events(sent)
    whole = read[-1].response
    assert texts(whole) == [("completed", "Right")]
    assert [e.delta for e in read if e.type == "response.output_text.delta"] == ["Rig", "ht"]


def test_text_that_was_sent_is_never_taken_back() -> None:
    made = events()
    sent = made.start() + made.text("Wrong") + made.begin_again()
    with pytest.raises(StreamDiverged) as caught:
        made.text("Right")
    last = read_events(sent + made.fail(caught.value.failed))[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert texts(last.response) == [("incomplete", "Wrong")]


def test_another_reply_than_was_streamed_is_an_error() -> None:
    made = events()
    made.text("Wrong")
    with pytest.raises(StreamDiverged):
        made.complete(Final("Right"))


def test_text_before_a_tool_is_no_part_of_json() -> None:
    made = events(
        ParsedRequest("default", (), wishes=Wishes(response_format={"type": "json_object"}))
    )
    made.text("I look.")
    made.step()
    with pytest.raises(StreamDiverged):
        made.text('{"a": 1}')


def test_calls_are_items_with_their_arguments() -> None:
    made = events()
    sent = made.start() + made.text("I look.")
    sent += made.complete(Final("I look.", calls=(CALL, ToolCall("call_2", "time"))))
    read = read_events(sent)
    whole = read[-1].response
    assert [item.type for item in whole.output] == ["message", "function_call", "function_call"]
    assert [item.call_id for item in whole.output[1:]] == ["call_1", "call_2"]
    done = [e for e in read if e.type == "response.function_call_arguments.done"]
    assert [e.arguments for e in done] == ['{"city":"Bern"}', "{}"]
    assert [e.output_index for e in done] == [1, 2]


def test_a_reply_that_was_cut_is_incomplete() -> None:
    made = events()
    sent = made.start() + made.text("Hel") + made.complete(Final("Hel", complete=False))
    last = read_events(sent)[-1]
    assert (last.type, last.response.status) == ("response.incomplete", "incomplete")
    assert last.response.incomplete_details.reason == "max_output_tokens"
    assert texts(last.response) == [("incomplete", "Hel")]


def test_a_failure_keeps_what_was_said() -> None:
    made = events()
    sent = made.start() + made.text("Hel") + made.fail(Failed("The model is gone."), USAGE)
    last = read_events(sent)[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert last.response.error.message == "The model is gone."
    assert texts(last.response) == [("incomplete", "Hel")]


def test_a_stopped_response_says_so() -> None:
    made = events()
    last = read_events(made.start() + made.text("Hel") + made.cancel())[-1]
    assert (last.type, last.response.status) == ("response.failed", "cancelled")


STEPS = st.lists(st.one_of(TEXTS, st.sampled_from(["<step>", "<again>"])), max_size=8)


@given(said=STEPS, last=TEXTS)
@settings(max_examples=60, deadline=None)
def test_whatever_happens_the_client_puts_the_same_text_together(
    server: Canned, said: list[str], last: str
) -> None:
    made = events()
    sent = made.start()
    message = ""
    for each in said:
        match each:
            case "<step>":
                sent += made.step()
                message = ""
            case "<again>":
                sent += made.begin_again() + made.text(message)
            case _:
                sent += made.text(each)
                message += each
    last = message + last
    sent += made.complete(Final(last.strip()))
    read = server.response_stream(as_events(sent))
    assert len(read) == len(sent)
    whole = read[-1].response
    assert whole.output_text.strip().endswith(last.strip())
    put_together: dict[int, str] = {}
    for event in read:
        match event.type:
            case "response.output_text.delta":
                before = put_together.get(event.output_index, "")
                put_together[event.output_index] = before + event.delta
            case "response.output_text.done" if event.text:
                assert put_together[event.output_index] == event.text
    for index, item in enumerate(whole.output):
        if item.status == "completed":
            assert item.content[0].text == put_together.get(index, "")


def test_the_clients_own_accumulator_follows_the_events(server: Canned) -> None:
    made = events()
    sent = made.start() + made.text("I ") + made.begin_again() + made.text("I look.") + made.step()
    sent += made.text('{"a":') + made.text("1}")
    sent += made.complete(Final('{"a":1}', calls=(CALL,)), USAGE)
    server.answer, server.kind = as_events(sent), "text/event-stream"
    with server.client.responses.stream(model="m", input="hi") as stream:
        for _ in stream:
            pass
        whole = stream.get_final_response()
    assert whole.output_text == 'I look.{"a":1}'
