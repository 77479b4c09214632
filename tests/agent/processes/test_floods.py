"""A flood of output is searched at little cost, and nothing is missed."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from parley.agent.processes.patterns import LineWatch, matches

_PIECES = st.lists(st.text("ab\n*é", max_size=30), max_size=6)
_PATTERNS = st.lists(st.text("ab*é", min_size=1, max_size=4), min_size=1, max_size=3)


@given(pieces=_PIECES, patterns=_PATTERNS)
def test_exactly_the_lines_that_match_are_found(pieces: list[str], patterns: list[str]) -> None:
    watch, position = LineWatch(patterns), 0
    for number, piece in enumerate(pieces, start=1):
        data = piece.encode()
        watch.feed(position, data, last=number == len(pieces))
        position += len(data)
    lines = "".join(pieces).split("\n")
    wanted = [line for line in lines if line and any(matches(each, line) for each in patterns)]
    assert watch.found == wanted[:20]
    assert watch.more == len(wanted[20:])


def test_a_flood_of_lines_costs_little() -> None:
    flood = b"y\n" * 500_000
    watch = LineWatch([f"needle {number}" for number in range(10)])
    began = time.process_time()
    watch.feed(0, flood + b"needle 7\n" + flood)
    cost = time.process_time() - began
    assert watch.found == ["needle 7"]
    plain = time.process_time()
    (flood + flood).decode().split("\n")
    assert cost < 3 * (time.process_time() - plain)
