"""Long text in parts: nothing is lost, nothing is too long, and code stays code."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from parley.surfaces.text.split import split_text

_FENCE_LINE = re.compile(r"^ {0,3}(`{3,}|~{3,})[\w+]*\s*$")

_words = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="`~>"), max_size=90
)
_prose = st.lists(_words, max_size=6).map("\n".join)
_code = st.builds(
    lambda indent, marker, language, body: "\n".join(
        [indent + marker + language, *body, indent + marker]
    ),
    st.sampled_from(["", " ", "   "]),
    st.sampled_from(["```", "~~~", "`````"]),
    st.sampled_from(["", "py", "c++"]),
    st.lists(_words, max_size=8),
)
_texts = st.lists(st.one_of(_prose, _code), max_size=8).map("\n\n".join)


def _content(text: str) -> str:
    """All that is said, without fences and white space."""
    lines = [line for line in text.split("\n") if not _FENCE_LINE.match(line)]
    return "".join("".join(lines).split())


def _has_open_fence(part: str) -> bool:
    lines = part.split("\n")
    for token in MarkdownIt("commonmark").parse(part):
        if token.type == "fence" and token.map is not None:
            last = lines[token.map[1] - 1].strip()
            if token.map[1] - token.map[0] < 2 or not last.startswith(token.markup):
                return True
    return False


@given(_texts, st.integers(64, 400))
def test_parts_hold_all_of_the_text_within_the_limit_and_balance_their_fences(
    text: str, limit: int
) -> None:
    parts = split_text(text, limit=limit)
    assert _content("\n".join(parts)) == _content(text)
    for part in parts:
        assert part.strip()
        assert len(part.encode()) <= limit
        assert not _has_open_fence(part)


@given(st.text(alphabet="ab `~\n>-1.\t#é👍🏽\u0301|", max_size=600), st.integers(64, 100))
def test_whatever_comes_it_ends_within_the_limit(text: str, limit: int) -> None:
    parts = split_text(text, limit=limit)
    assert all(len(part.encode()) <= limit for part in parts)


def test_short_text_stays_as_it_is() -> None:
    text = "Hello.\n\n  ```py\n  x = 1\n  ```\n\nBye."
    assert split_text(text, limit=1000) == [text]
    assert split_text("  \n ", limit=1000) == []


def test_parts_end_between_paragraphs_where_they_can() -> None:
    first, second = "word " * 10 + "end.", "other " * 10 + "end."
    assert split_text(f"{first}\n\n{second}", limit=80) == [first, second]


def test_without_paragraphs_it_breaks_at_sentences_then_words() -> None:
    sentences = "This is the first one of them all here. " * 3
    assert all(part.rstrip().endswith("here.") for part in split_text(sentences, limit=64))
    words = "abcdefg " * 30
    assert all(set(part.split()) == {"abcdefg"} for part in split_text(words, limit=64))


def test_a_fence_that_is_cut_is_closed_and_opened_again_with_its_language() -> None:
    code = "\n".join(f"line_{number} = {number}" for number in range(12))
    parts = split_text(f"````python title=x\n{code}\n````\nDone.", limit=90)
    assert len(parts) > 2
    assert all(part.startswith("````python") for part in parts[:-1])
    assert all(part.endswith("\n````") for part in parts[:-1])
    joined = [line for part in parts for line in part.split("\n") if line.startswith("line_")]
    assert "\n".join(joined) == code


def test_a_fence_that_fits_the_next_part_is_not_cut() -> None:
    prose = "word " * 13
    code = "```sh\n" + "echo hello\n" * 5 + "```"
    assert split_text(f"{prose}\n{code}", limit=90) == [prose, code]


def test_no_part_is_an_empty_fence() -> None:
    for length in range(10, 80):
        for part in split_text(f"{'p' * length}\n```py\n{'c' * length}\n```\nend", limit=64):
            assert not re.fullmatch(r"```py\n```", part), length


def test_a_fence_in_a_list_is_opened_again_and_closed_where_it_ends() -> None:
    code = "\n".join(f"       step {number}" for number in range(10))
    parts = split_text(f"1. Run this:\n       ```sh\n{code}\n       ```\n2. Rest.", limit=100)
    assert len(parts) > 1
    assert parts[1].startswith("```sh\n")
    assert parts[-1].endswith("2. Rest.")
    assert " ```" not in "\n".join(parts[1:])


def test_tables_and_lists_are_cut_between_rows() -> None:
    rows = "\n".join(f"| {number} | some cell |" for number in range(20))
    for part in split_text(rows, limit=100):
        assert all(line.startswith("| ") and line.endswith(" |") for line in part.split("\n"))


@pytest.mark.parametrize(
    "character",
    ["e\u0301", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "न\u0940", "\U00020000"],
    ids=["combining", "skin", "family", "flag", "vowel", "plane-2"],
)
def test_what_is_read_as_one_character_is_not_cut(character: str) -> None:
    for part in split_text(character * 60, limit=70):
        assert part == character * (len(part) // len(character))


def test_a_large_text_takes_no_longer_than_its_length() -> None:
    for text in ("x" * 2_000_000, "word " * 400_000, "`\n" * 100_000, "```\n" * 100_000):
        begun = time.process_time()
        parts = split_text(text, limit=12_000)
        assert parts
        assert time.process_time() - begun < 8
