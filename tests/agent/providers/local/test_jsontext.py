"""The reply's text comes out of half-written JSON, wherever it is split."""

from __future__ import annotations

import itertools
import json

from hypothesis import example, given
from hypothesis import strategies as st

from parley.agent.providers.local.jsontext import ReplyReader

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\/\n\t😀é{}[]:,'))
CUTS = st.lists(st.integers(0, 400), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def _pieces(written: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(written), *(cut for cut in cuts if cut < len(written))})
    return [written[a:b] for a, b in itertools.pairwise(places)]


def _read(pieces: list[str]) -> list[str]:
    reader = ReplyReader()
    return [reader.feed(piece) for piece in pieces]


@given(text=TEXT, cuts=CUTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
@example(text="😀", cuts=list(range(60)), ascii_only=True, indent=None)
def test_any_text_comes_out_whole_however_it_is_split(
    text: str, cuts: list[int], ascii_only: bool, indent: int | None
) -> None:
    answer = {"tool": "reply", "args": {"text": text}}
    written = json.dumps(answer, ensure_ascii=ascii_only, indent=indent)
    assert "".join(_read(_pieces(written, cuts))) == text


@given(text=TEXT, cuts=CUTS, other=VALUES)
def test_nothing_but_the_text_comes_out(text: str, cuts: list[int], other: object) -> None:
    args = {"before": other, "text": text, "after": {"text": "no", "tool": "no"}}
    written = json.dumps({"x": other, "tool": "reply", "y": [{"text": "no"}], "args": args})
    assert "".join(_read(_pieces(written, cuts))) == text


@given(text=TEXT, cuts=CUTS)
def test_the_order_of_the_two_does_not_matter(text: str, cuts: list[int]) -> None:
    written = json.dumps({"args": {"text": text}, "tool": "reply"})
    assert "".join(_read(_pieces(written, cuts))) == text


@given(args=st.dictionaries(TEXT | st.just("text"), VALUES, max_size=4), cuts=CUTS)
def test_the_call_of_another_tool_shows_nothing(args: dict[str, object], cuts: list[int]) -> None:
    written = json.dumps({"tool": "read_file", "args": args})
    assert "".join(_read(_pieces(written, cuts))) == ""


def test_text_is_given_as_soon_as_it_is_certain() -> None:
    pieces = ['{"tool": "reply", "args": {"text": "H', "el", "lo \\", "n\\ud83d", "\\ude00", '"}}']
    assert _read(pieces) == ["H", "el", "lo ", "\n", "😀", ""]


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    written = r'{"tool":"reply","args":{"text":"a\ud83dz\ude00\ud83d"}}'
    text = "".join(_read(list(written)))
    assert text == "a\ufffdz\ufffd\ufffd"
    text.encode()
