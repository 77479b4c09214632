"""The SSE parser gives the same events however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.providers.sse import SseError, SseEvent, SseParser


def parse(*chunks: bytes, limit: int = 10_000) -> list[SseEvent]:
    parser = SseParser(limit=limit)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.finish()


def data_of(*chunks: bytes) -> list[str]:
    return [event.data for event in parse(*chunks)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending_ends_a_line(end: bytes) -> None:
    assert data_of(b"data: a" + end + end + b"data: b" + end + end) == ["a", "b"]


def test_a_line_ending_cut_in_two_is_still_one() -> None:
    assert data_of(b"data: a\r", b"\ndata: b\r", b"", b"\n\r", b"\n") == ["a\nb"]


def test_a_space_after_the_colon_is_optional_and_only_one_is_taken() -> None:
    assert data_of(b"data:a\n\ndata: b\n\ndata:  c\n\n") == ["a", "b", " c"]


def test_lines_of_data_are_joined_and_comments_are_skipped() -> None:
    assert data_of(b": hello\ndata: a\n:\ndata\ndata: b\n\n") == ["a\n\nb"]


def test_a_byte_order_mark_at_the_start_is_no_part_of_the_first_field() -> None:
    assert data_of(b"\xef", b"\xbb", b"\xbfdata: a\n\n") == ["a"]


def test_event_id_and_retry_are_read() -> None:
    parser = SseParser()
    first, second = parser.feed(b"event: x\nid: 7\nretry: 250\ndata: a\n\ndata: b\n\n")
    assert (first, second) == (SseEvent("a", "x", "7"), SseEvent("b", "message", "7"))
    assert parser.retry_milliseconds == 250


def test_an_event_without_data_is_none_and_its_name_does_not_stick() -> None:
    assert parse(b"event: x\n\ndata: a\n\n") == [SseEvent("a")]


def test_a_bad_retry_and_an_id_with_a_null_are_ignored() -> None:
    parser = SseParser()
    assert parser.feed(b"retry: soon\nid: a\0b\ndata: a\n\n") == [SseEvent("a")]
    assert parser.retry_milliseconds is None


@pytest.mark.parametrize("tail", [b"data: a", b"data: a\n", b"data: a\r"])
def test_an_unfinished_last_event_comes_at_the_end(tail: bytes) -> None:
    parser = SseParser()
    assert parser.feed(tail) == []
    assert parser.finish() == [SseEvent("a")]


def test_bytes_that_are_no_text_do_not_stop_the_stream() -> None:
    assert data_of(b"data: \xff\n\ndata: b\n\n") == ["\ufffd", "b"]


def test_characters_that_only_look_like_line_ends_are_data() -> None:
    text = "a\u2028b\x0bc\x85d"
    assert data_of(f"data: {text}\n\n".encode()) == [text]


def test_an_event_that_is_too_large_raises_and_keeps_raising() -> None:
    parser = SseParser(limit=20)
    with pytest.raises(SseError):
        parser.feed(b"data: " + b"x" * 20)
    with pytest.raises(SseError):
        parser.feed(b"data: a\n\n")


def test_many_lines_make_an_event_too_large_as_well() -> None:
    parser = SseParser(limit=20)
    with pytest.raises(SseError):
        parser.feed(b"data: 1234\n" * 10)


def test_whole_events_before_one_that_is_too_large_are_handed_out() -> None:
    parser = SseParser(limit=20)
    assert parser.feed(b"data: a\n\ndata: " + b"x" * 30) == [SseEvent("a")]
    with pytest.raises(SseError):
        parser.finish()


def test_many_small_events_are_never_too_large() -> None:
    assert len(parse(b"data: 12345678\n\n" * 1000, limit=20)) == 1000


def outcome(chunks: list[bytes], limit: int) -> tuple[list[SseEvent], int | None, bool]:
    parser = SseParser(limit=limit)
    events: list[SseEvent] = []
    try:
        for chunk in chunks:
            events += parser.feed(chunk)
        events += parser.finish()
    except SseError:
        return events, None, True
    return events, parser.retry_milliseconds, False


_FIELDS = [b"data", b"data: {}", b"event: x", b"id: 1", b"retry: 5", b": note", b"[DONE]"]
_BYTES = [b":", b" ", b"\xef\xbb\xbf", "grün 🌱".encode(), b"\xff", b"\0"]
_ENDS = [b"\n", b"\r", b"\r\n", b"\n\n", b""]
_LINES = st.lists(st.sampled_from([*_FIELDS, *_BYTES]), max_size=3).map(b"".join)
_STREAMS = st.lists(st.tuples(_LINES, st.sampled_from(_ENDS)).map(b"".join), max_size=12)


@given(_STREAMS.map(b"".join), st.data(), st.sampled_from([12, 40, 10_000]))
def test_any_split_of_the_bytes_gives_the_same_events(
    stream: bytes, data: st.DataObject, limit: int
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole = outcome([stream], limit)
    assert outcome(chunks, limit) == whole
    assert outcome([bytes([byte]) for byte in stream], limit) == whole
