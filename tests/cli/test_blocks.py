"""Streamed Markdown is cut into blocks that can be shown for good."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from parley.cli._blocks import split_blocks

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
    rest = ""
    for start, end in itertools.pairwise(marks):
        finished, rest = split_blocks(rest + text[start:end])
        shown += finished
    assert (shown, rest) == split_blocks(text)


def test_a_paragraph_is_finished_by_a_blank_line() -> None:
    assert split_blocks("one\ntwo\n\nthree") == (["one\ntwo\n\n"], "three")


def test_a_fence_is_kept_in_one_piece() -> None:
    code = "```python\na = 1\n\nb = 2\n```\n\n"
    assert split_blocks(code + "after") == ([code], "after")
    assert split_blocks("```\na\n\nb\n") == ([], "```\na\n\nb\n")


def test_a_longer_fence_holds_a_shorter_one() -> None:
    text = "````\n```\n\n```\n````\n\n"
    assert split_blocks(text) == ([text], "")
