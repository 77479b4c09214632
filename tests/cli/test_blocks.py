"""Streamed Markdown is cut into blocks that can be shown for good."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from parley.cli._blocks import Blocks, split_blocks

LINES = st.lists(
    st.sampled_from(["text", "", "```", "```python", "~~~", "- item", "    code", "````", " "]),
    max_size=20,
).map("\n".join)


@given(LINES)
def test_blocks_and_rest_are_the_text(text: str) -> None:
    blocks, rest = split_blocks(text)
    assert "".join(blocks) + rest == text


@given(LINES, st.lists(st.integers(0, 200), max_size=6))
def test_the_pieces_a_text_comes_in_do_not_matter(text: str, cuts: list[int]) -> None:
    marks = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    shown: list[str] = []
    blocks = Blocks()
    for start, end in itertools.pairwise(marks):
        shown += blocks.add(text[start:end])
    assert (shown, blocks.rest) == split_blocks(text)


def test_a_paragraph_is_finished_by_a_blank_line() -> None:
    assert split_blocks("one\ntwo\n\nthree") == (["one\ntwo\n\n"], "three")


def test_a_fence_is_kept_in_one_piece() -> None:
    code = "```python\na = 1\n\nb = 2\n```\n\n"
    assert split_blocks(code + "after") == ([code], "after")
    assert split_blocks("```\na\n\nb\n") == ([], "```\na\n\nb\n")


def test_a_longer_fence_holds_a_shorter_one() -> None:
    text = "````\n```\n\n```\n````\n\n"
    assert split_blocks(text) == ([text], "")


def test_an_odd_line_break_does_not_hold_up_what_follows() -> None:
    text = "one\u2028two\x0cthree\n\n"
    assert split_blocks(text + "four") == ([text], "four")


def test_the_tail_is_short_however_long_the_block_is() -> None:
    blocks = Blocks()
    blocks.add("".join(f"line {number}\n" for number in range(100)))
    assert blocks.tail(2, 100) == "line 98\nline 99"
    blocks.add("y" * 100_000)
    assert blocks.tail(2, 50) == "y" * 50
