"""Frames survive the wire, and only frames do."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.surfaces.terminal.wire import BadFrame, Deliver, Frame, Hello, Say, decode, encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FRAMES = st.one_of(*(st.from_type(kind) for kind in get_args(Frame) if kind.__name__ != "Status"))


@given(FRAMES)
def test_a_frame_comes_back_as_it_went(frame: Frame) -> None:
    line = encode(frame)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == frame


@given(TEXT)
def test_any_text_is_one_line(text: str) -> None:
    assert encode(Say("1", text)).count(b"\n") == 1
    assert decode(encode(Say("1", text))) == Say("1", text)


def test_half_a_surrogate_pair_does_not_break_the_line() -> None:
    said = decode(encode(Say("1", "a\ud83d b")))
    assert isinstance(said, Say)
    assert said.text.startswith("a")


def test_a_field_nobody_knows_is_left_out() -> None:
    assert decode(b'{"type": "hello", "chat": "x", "colour": "red"}') == Hello("x")


@given(st.binary(max_size=200))
def test_anything_else_is_a_bad_frame(line: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"deliver","delivery":1,"key":"k","kind":"reply","text":"x","answers":"1"}',
        b'{"type":"deliver","delivery":"1","key":"k","kind":"reply","text":"x"}',
        b'{"type":"hello","chat":null}',
    ],
)
def test_a_value_of_another_type_is_a_bad_frame(line: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(line)


def test_answers_come_back_as_they_were() -> None:
    frame = Deliver(1, "turn:1", "reply", "hello", answers=("a", "b"), turn=3)
    assert decode(encode(frame)) == frame
