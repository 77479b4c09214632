"""The ring of what was printed, and the watch over its lines."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.processes.keeper import _Ring
from parley.agent.processes.patterns import MOST_REPORTS, SECONDS_BETWEEN, LineWatch, matches
from parley.agent.processes.ring import read_ring


@given(
    st.lists(st.binary(max_size=40), max_size=20),
    st.integers(4, 50),
    st.integers(0, 400),
    st.integers(0, 60),
)
def test_the_ring_holds_the_end_of_all(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], size: int, since: int, last: int
) -> None:
    folder = tmp_path_factory.mktemp("ring")
    before = Path.cwd()
    os.chdir(folder)
    try:
        ring = _Ring(size)
        for chunk in chunks:
            ring.add(chunk)
        ring.close()
    finally:
        os.chdir(before)
    text = b"".join(chunks)
    piece = read_ring(folder / "output", size=size, since=since, last=last)
    start = min(max(since, len(text) - size, len(text) - last, 0), len(text))
    assert (piece.start, piece.data) == (start, text[start:])


def test_there_is_nothing_before_it_is_made(tmp_path: Path) -> None:
    assert read_ring(tmp_path / "output", size=10).data == b""


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        ("ERROR", "an ERROR came", True),
        ("ERROR", "an error came", False),
        ("a*c*e", "xabcdex", True),
        ("a*c*e", "eca", False),
        ("(a+)+$", "aaaa", False),
        ("(a+)+$", "is (a+)+$ here", True),
        ("*", "", True),
    ],
)
def test_a_pattern_is_a_text_with_gaps(pattern: str, line: str, expected: bool) -> None:
    assert matches(pattern, line) is expected


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_lines_are_found_however_they_arrive(text: bytes, cuts: list[int]) -> None:
    text = text.replace(b"\r", b"")
    whole, pieces = LineWatch(("a",)), LineWatch(("a",))
    whole.feed(0, text, last=True)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(places):
        pieces.feed(start, text[start:end])
    pieces.feed(len(text), b"", last=True)
    assert pieces.found == whole.found


def test_a_line_whose_beginning_is_lost_says_nothing() -> None:
    watch = LineWatch(("ERROR",))
    watch.feed(0, b"fine\nhalf a ")
    watch.feed(5000, b"ERROR of another\nERROR here\n")
    assert watch.found == ["ERROR here"]


def test_reports_are_few_and_there_is_a_last_one() -> None:
    watch = LineWatch(("x",))
    now, reports, position = 0.0, 0, 0
    for _ in range(MOST_REPORTS * 3):
        for _ in range(30):
            watch.feed(position, b"x\n")
            position += 2
        taken = watch.take(now)
        if taken is not None:
            lines, more = taken
            assert (len(lines), more) == (20, 10)
            reports += 1
            assert watch.is_over is (reports == MOST_REPORTS + 1)
        assert watch.take(now + SECONDS_BETWEEN / 2) is None
        now += SECONDS_BETWEEN
    assert reports == MOST_REPORTS + 1


def test_a_line_without_end_costs_little() -> None:
    watch = LineWatch(("needle",))
    position = 0
    for _ in range(50):
        watch.feed(position, b"x" * 100_000)
        position += 100_000
    assert len(watch._line) <= 4096
    watch.feed(position, b" needle\nneedle\n")
    assert watch.found == ["needle"]
