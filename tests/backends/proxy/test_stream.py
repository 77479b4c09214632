"""The answer is the same however its bytes are cut, and bounded whatever they are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.backends.proxy.stream import ApprovalWanted, Happening, RemoteReply, StepOver
from parley.protocol import (
    CallDelta,
    ReasoningDelta,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolStarted,
    Usage,
)
from tests.servers.raw_sse import chunk_of, said


def read(*chunks: bytes, **limits: int) -> tuple[RemoteReply, list[Happening]]:
    reply = RemoteReply(**limits)
    happened = [each for chunk in chunks for each in reply.feed(chunk)]
    return reply, happened + reply.finish()


def text_of(*chunks: bytes) -> str:
    return read(*chunks)[0].text


def test_pieces_of_text_are_put_together() -> None:
    reply, happened = read(said(content="Hello"), said(content=" world"), b"data: [DONE]\n\n")
    assert reply.text == "Hello world"
    assert happened == [TextDelta("Hello"), TextDelta(" world")]
    assert reply.is_over
    assert reply.is_done


def test_a_letter_cut_in_two_is_one_letter() -> None:
    raw = 'data: {"choices":[{"delta":{"content":"grün 🌱"}}]}\n\n'.encode()
    for cut in range(len(raw)):
        assert text_of(raw[:cut], raw[cut:]) == "grün 🌱"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_will_do(end: bytes) -> None:
    raw = said(content="a") + said(content="b") + b"data: [DONE]\n\n"
    assert text_of(raw.replace(b"\n", end)) == "ab"


def test_no_space_comments_and_data_on_several_lines_will_do() -> None:
    assert text_of(b'data:{"choices":[{"delta":{"content":"a"}}]}\n\n') == "a"
    assert text_of(b": keep-alive\n\n", said(content="a"), b":\n\n") == "a"
    assert text_of(b'data: {"choices":[{"delta":\ndata: {"content":"a"}}]}\n\n') == "a"


def test_the_other_half_of_a_letter_may_come_with_the_next_piece() -> None:
    halves = [
        b'data: {"choices":[{"delta":{"content":"a\\ud83c"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\udf31b"}}]}\n\n',
    ]
    reply, happened = read(*halves)
    assert reply.text == "a🌱b"
    assert happened == [TextDelta("a"), TextDelta("🌱b")]
    reply.text.encode()


def test_half_a_letter_alone_does_no_harm() -> None:
    lone = b'data: {"choices":[{"delta":{"content":"a\\udf31b"}}]}\n\n'
    assert text_of(lone) == "a\ufffdb"


def test_content_may_be_a_list_of_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, "x", {"type": "text", "text": "b"}]
    assert text_of(said(content=parts)) == "ab"


def test_what_a_model_thinks_to_itself_is_no_part_of_the_text() -> None:
    assert text_of(said(reasoning_content="hm", reasoning="hm"), said(content="a")) == "a"
    reply = RemoteReply()
    half = b'data: {"choices":[{"delta":{"reasoning":"w\\udf31"}}]}\n\n'
    assert reply.feed(said(reasoning_content="hm")) == [ReasoningDelta("hm")]
    reply.feed(b"event: parley.reset\ndata: {}\n\n")
    reply.feed(half)
    reply.feed(b"event: parley.step\ndata: {}\n\n" + said(reasoning_content="so", content="b"))
    assert (reply.reasoning, reply.text) == ("w\ufffd\n\nso", "b")


def test_a_second_choice_and_unknown_events_are_left_out() -> None:
    second = chunk_of({"choices": [{"index": 1, "delta": {"content": "no"}}]})
    unknown = chunk_of({"choices": [{"delta": {"content": "no"}}]}, event="x.tool.progress")
    assert text_of(second, unknown, said(content="a"), b"data: nonsense\n\ndata: 7\n\n") == "a"


def test_usage_comes_from_the_last_chunk_that_has_it() -> None:
    used = {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    reply, _ = read(said(content="a"), chunk_of({"choices": [], "usage": used}))
    assert reply.usage == Usage("proxy", "far", 9, 3, 4)
    assert read(said(content="a"))[0].usage is None


def test_nothing_is_read_after_the_end() -> None:
    assert text_of(said(content="a"), b"data: [DONE]\n\n", said(content="b")) == "a"


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (chunk_of({"error": {"message": "no"}}), {"message": "no"}),
        (chunk_of({"error": {"message": "no"}}, event="error"), {"message": "no"}),
        (chunk_of({"message": "no"}, event="error"), {"message": "no"}),
        (b"event: error\ndata: just so\n\n", "just so"),
    ],
)
def test_an_error_ends_the_answer(raw: bytes, error: object) -> None:
    reply, _ = read(said(content="a"), raw, said(content="b"))
    assert reply.error == error
    assert reply.text == "a"


def test_a_whole_answer_instead_of_a_stream_is_read_as_well() -> None:
    whole = {"id": "x", "choices": [{"message": {"content": "all"}, "finish_reason": "stop"}]}
    raw = json.dumps(whole).encode()
    for start in (b"", b"\r\n ", b"\xef\xbb\xbf"):
        for chunks in ([start + raw[:5], raw[5:]], [bytes([byte]) for byte in start + raw]):
            reply, happened = read(*chunks)
            assert reply.text == "all"
            assert happened == [TextDelta("all")]
            assert reply.is_over


def test_a_byte_order_mark_before_a_stream_is_no_part_of_it() -> None:
    assert text_of(b"\xef", b"\xbb", b"\xbf", said(content="a")) == "a"


@pytest.mark.parametrize(
    ("raw", "words"), [(b"<html>", "web page"), (b"{]", "no JSON"), (b"[1]", "no JSON")]
)
def test_what_is_no_answer_is_said(raw: bytes, words: str) -> None:
    assert words in str(read(raw)[0].fault)


# ── what only Parley sends ──


def test_steps_resets_and_tools_are_told_in_order() -> None:
    started = {"phase": "started", "call_id": "c1", "name": "now", "arguments": {"zone": "UTC"}}
    finished = {"phase": "finished", "call_id": "c1", "name": "now", "ok": True}
    reply, happened = read(
        said(content="I look."),
        chunk_of({}, event="parley.step"),
        chunk_of({}, event="parley.step"),
        chunk_of(started, event="parley.tool"),
        chunk_of(finished, event="parley.tool"),
        said(content="wrong"),
        chunk_of({}, event="parley.reset"),
        said(content="It is noon."),
    )
    call = ToolCall("c1", "now", {"zone": "UTC"})
    assert happened == [
        TextDelta("I look."),
        StepOver("I look."),
        ToolStarted(call),
        ToolFinished(call, ok=True),
        TextDelta("wrong"),
        TextReset(),
        TextDelta("It is noon."),
    ]
    assert reply.text == "It is noon."


def test_a_question_is_told_with_its_call() -> None:
    asked = {"id": "a1", "question": "May I?", "call": {"id": "c1", "name": "rm", "arguments": {}}}
    _, happened = read(chunk_of(asked, event="parley.approval"))
    assert happened == [ApprovalWanted("a1", "May I?", ToolCall("c1", "rm"))]
    _, happened = read(chunk_of({**asked, "lasting": True}, event="parley.approval"))
    assert happened == [ApprovalWanted("a1", "May I?", ToolCall("c1", "rm"), lasting=True)]


def test_a_question_that_cannot_be_shown_whole_is_not_cut() -> None:
    call = {"id": "c1", "name": "rm", "arguments": {}}
    whole = "May I " + "x" * 8_000 + "?"
    _, happened = read(
        chunk_of({"id": "a1", "question": whole, "call": call}, event="parley.approval")
    )
    assert happened == [ApprovalWanted("a1", whole, ToolCall("c1", "rm"))]
    asked = {"id": "a1", "question": "May I " + "x" * 80_000 + "?", "call": call}
    _, happened = read(chunk_of(asked, event="parley.approval"))
    assert happened == [ApprovalWanted("a1", "", ToolCall("c1", "rm"))]


@pytest.mark.parametrize("name", ["parley.tool", "parley.approval", "parley.step", "parley.x"])
@pytest.mark.parametrize("data", [{}, [], None, {"call": 7}, {"phase": "started", "call_id": 7}])
def test_an_event_that_makes_no_sense_is_nothing(name: str, data: object) -> None:
    assert read(chunk_of(data, event=name))[1] == []


# ── limits ──


def test_more_bytes_than_any_answer_has_are_not_read() -> None:
    reply, _ = read(said(content="a"), b": garbage\n" * 100, said(content="b"), most_bytes=300)
    assert reply.fault is not None
    assert reply.text == "a"


def test_a_line_without_end_costs_bounded_memory() -> None:
    reply = RemoteReply()
    fed = 0
    while reply.fault is None:
        reply.feed(b"x" * 65_536)
        fed += 65_536
    assert fed < 8 * 1024 * 1024


def test_a_whole_answer_without_end_costs_bounded_memory() -> None:
    reply = RemoteReply()
    fed = 0
    while reply.fault is None:
        reply.feed(b"{" * 65_536)
        fed += 65_536
    assert fed < 20 * 1024 * 1024


def test_white_space_without_end_is_not_kept() -> None:
    reply = RemoteReply(most_bytes=1_000_000)
    while reply.fault is None:
        reply.feed(b" \r\n" * 10_000)
    assert len(reply._head or b"") <= 3


def test_more_text_than_any_answer_has_is_cut() -> None:
    reply, _ = read(said(content="abc"), said(content="def"), said(content="g"), most_text=5)
    assert reply.fault is not None
    assert reply.text == "abcde"


# ── any answer, any cut ──

_TEXTS = st.text(
    st.characters(codec="utf-8") | st.sampled_from(["\n", "\r", "🌱", "\u2028"]),
    max_size=8,
)
_CALLS = st.fixed_dictionaries(
    {
        "index": st.integers(0, 2),
        "id": st.sampled_from(["", "c1", "c2"]),
        "function": st.fixed_dictionaries(
            {
                "name": st.sampled_from(["", "now"]),
                "arguments": st.sampled_from(["", "{}", '{"a":', "1}"]),
            }
        ),
    }
)
_DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": _TEXTS | st.none(),
        "reasoning_content": _TEXTS,
        "tool_calls": st.lists(_CALLS, max_size=2),
    },
)
_CHUNKS = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"delta": _DELTAS}), max_size=2)},
    optional={
        "id": st.sampled_from(["r1", "r2"]),
        "usage": st.fixed_dictionaries({"prompt_tokens": st.integers(0, 9)}),
        "error": st.sampled_from([None, {"message": "no"}]),
    },
)
_TOOLS = st.fixed_dictionaries(
    {
        "phase": st.sampled_from(["started", "finished", "x"]),
        "call_id": st.sampled_from(["c1", "c2"]),
        "name": st.just("now"),
    }
)
_EVENTS = st.one_of(
    _CHUNKS.map(lambda chunk: ("", json.dumps(chunk, ensure_ascii=False))),
    _CHUNKS.map(lambda chunk: ("", json.dumps(chunk, indent=1))),
    _TOOLS.map(lambda tool: ("parley.tool", json.dumps(tool))),
    st.sampled_from(
        [("parley.step", "{}"), ("parley.reset", "{}"), ("other", "{}"), ("error", "no")]
    ),
    st.sampled_from([("", "[DONE]"), ("", "garbage"), ("", "7")]),
)


def written(name: str, data: str, *, end: str, space: bool) -> str:
    lines = [f"event: {name}"] if name else [": a note"]
    lines += [f"data:{' ' if space else ''}{line}" for line in data.split("\n")]
    return "".join(line + end for line in [*lines, ""])


def outcome(chunks: list[bytes], *, most_bytes: int = 100_000) -> tuple[Any, ...]:
    reply = RemoteReply(most_bytes=most_bytes, most_text=60)
    happened: list[Happening] = []
    for chunk in chunks:
        happened += reply.feed(chunk)
    happened += reply.finish()
    # A call without an id gets one of ours, which is another each time.
    shown = [
        replace(event, id="ours")
        if isinstance(event, CallDelta) and event.id not in ("c1", "c2")
        else event
        for event in happened
    ]
    calls = [(call.name, call.arguments) for call in reply.calls]
    return shown, reply.text, calls, reply.usage, reply.error, reply.fault, reply.is_over


@given(
    st.lists(_EVENTS, max_size=8),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.booleans(),
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\r\n"]),
    st.data(),
)
def test_any_events_in_any_pieces_with_any_line_ends_give_the_same(
    events: list[tuple[str, str]], end: str, space: bool, start: bytes, data: st.DataObject
) -> None:
    def raw(ends: str, *, spaced: bool) -> bytes:
        return "".join(written(n, d, end=ends, space=spaced) for n, d in events).encode()

    # JSON holds no bare line end of its own, so that the lines are the same ones.
    plain = outcome([raw("\n", spaced=True)])
    stream = start + raw(end, spaced=space)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert outcome(chunks) == plain
    assert outcome([bytes([byte]) for byte in stream]) == plain
    assert outcome(chunks, most_bytes=200) == outcome([stream], most_bytes=200)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8))
def test_any_bytes_at_all_in_any_pieces_give_the_same(raw: bytes, places: list[int]) -> None:
    cuts = sorted(min(place, len(raw)) for place in places)
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert outcome(chunks) == outcome([raw])
