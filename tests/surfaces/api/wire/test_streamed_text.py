"""What a stream may still say after a model began its answer again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.surfaces.api.wire.streamed_text import StreamDiverged, StreamedText

PIECES = st.lists(st.text("ab \n", min_size=1, max_size=4), max_size=5)


@given(tries=st.lists(PIECES, min_size=1, max_size=4))
def test_a_client_has_the_last_answer_or_an_error(tries: list[list[str]]) -> None:
    text, got = StreamedText(), ""
    reply = "".join(tries[-1]).strip()
    try:
        for number, pieces in enumerate(tries):
            if number:
                text.begin_again()
            for piece in pieces:
                got += text.add(piece)
        got += text.rest_of(reply)
    except StreamDiverged:
        begun = ["".join(pieces) for pieces in tries]
        assert any(not later.startswith(got) for later in begun)
    else:
        assert got.strip() == reply


def test_an_answer_that_begins_the_same_is_continued() -> None:
    text = StreamedText()
    assert text.add("Par") == "Par"
    text.begin_again()
    assert [text.add("P"), text.add("aris"), text.add(".")] == ["", "is", "."]
    assert text.rest_of("Paris.") == ""


def test_a_different_answer_raises_at_its_first_different_letter() -> None:
    text = StreamedText()
    text.add("Paris")
    text.begin_again()
    assert text.add("Pa") == ""
    with pytest.raises(StreamDiverged):
        text.add("nama")


def test_a_shorter_answer_raises_at_its_end() -> None:
    text = StreamedText()
    text.add("Paris, of course")
    text.begin_again()
    text.add("Paris")
    with pytest.raises(StreamDiverged):
        text.rest_of("Paris")


def test_a_step_without_the_text_that_was_sent_raises() -> None:
    text = StreamedText()
    text.add("I look")
    text.begin_again()
    with pytest.raises(StreamDiverged):
        text.end_message()


def test_the_gap_stands_between_messages_and_nowhere_else() -> None:
    text = StreamedText("\n\n")
    assert (text.take_gap(), text.add("I look.")) == ("", "I look.")
    text.end_message()
    text.end_message()
    assert (text.take_gap(), text.add("It ")) == ("\n\n", "It ")
    assert (text.take_gap(), text.add("rains.")) == ("", "rains.")
    assert (text.take_gap(), text.rest_of("It rains.")) == ("", "")


def test_a_reply_that_was_said_before_its_tools_is_not_said_again() -> None:
    text = StreamedText("\n\n")
    text.add("I look. ")
    text.end_message()
    assert text.rest_of("I look.") == ""
