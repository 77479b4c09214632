"""What a person is shown before they allow a call reads back to exactly that call."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parley.agent.question_text import describe_call, describe_text, mark_unseen, render_question
from parley.surfaces.matrix.content import part_limit
from parley.surfaces.text.markup import to_html
from parley.surfaces.text.split import split_text
from tests.agent.shown_text import page_text, read_arguments, read_text

TRICKY = st.sampled_from(
    "\n\\nrt`⟨⟩|+ 12\t\r\x1b\u202e\u2066\u200b\u2028\u00a0\u00ad\ufeff\u0301\u0327é\u1100\u1161א٣<>"
)
TEXTS = st.one_of(st.text(), st.text(TRICKY), st.text(st.one_of(TRICKY, st.characters())))
LONG_TEXTS = st.builds(lambda piece, times: piece * times, TEXTS, st.integers(1, 20)).filter(bool)
ARGUMENTS = st.dictionaries(
    st.one_of(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), TEXTS),
    st.recursive(
        st.one_of(TEXTS, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False)),
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXTS, inner)),
        max_leaves=6,
    ),
)


def as_page(shown: str) -> str:
    """What is left of a question in HTML, in one part or in several."""
    blocks = ""
    for part in split_text(shown, limit=part_limit(shown)):
        html = to_html(part)
        blocks += part if html is None else page_text(html)
    return blocks.replace("\n```\n\n```\n", "\n")


# ── reading it back ──


@given(LONG_TEXTS)
def test_what_is_shown_reads_back_to_what_is_run(text: str) -> None:
    assert read_text(render_question(describe_text("run", text, "with network"))) == text


@given(ARGUMENTS)
def test_shown_arguments_read_back_to_what_is_used(arguments: dict[str, Any]) -> None:
    shown = render_question(describe_call("use `deed`", arguments))
    assert read_arguments(shown) == arguments


@given(LONG_TEXTS)
def test_html_shows_the_same(text: str) -> None:
    """In the HTML of a chat that joins blanks, and in the parts of a long message."""
    assert read_text(as_page(render_question(describe_text("run", text)))) == text


@given(LONG_TEXTS, LONG_TEXTS)
def test_two_commands_never_look_the_same(one: str, other: str) -> None:
    assume(one != other)
    assert describe_text("run", one) != describe_text("run", other)


@given(
    st.one_of(
        LONG_TEXTS.map(lambda text: describe_text("run", text)),
        ARGUMENTS.map(lambda arguments: describe_call("use `deed`", arguments)),
    )
)
def test_nothing_that_is_shown_can_be_missed_or_taken_for_another(what: str) -> None:
    for line in render_question(what).split("\n"):
        assert line.isprintable()
        assert not line.endswith(" ")
        assert unicodedata.normalize("NFC", line) == line


# ── how it looks ──


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -r old", "run `rm -r old`"),
        ("grep '\\.py$' a\\nb", "run `grep '\\.py$' a\\nb`"),
        ("a\nb", "run these 2 lines\n\n```\n1 | a\n2 | b\n```"),
        ("a\n", "run these 2 lines\n\n```\n1 | a\n2 |\n```"),
        ("a  b", "run this line\n\n```\n1 | a  b\n```"),
        ("a ", "run this line\n\n```\n1 | a⟨SPACE⟩\n```"),
        ("a `b`", "run this line\n\n```\n1 | a `b`\n```"),
        ("⟨U+202E⟩", "run `⟨U+27E8⟩U+202E⟩`"),
        ("\u202ea\u200b\u00a0", "run `⟨U+202E⟩a⟨U+200B⟩⟨U+00A0⟩`"),
        ("e\u0301 é", "run `e⟨U+0301⟩ é`"),
    ],
)
def test_how_a_command_looks(text: str, shown: str) -> None:
    assert describe_text("run", text) == shown


def test_a_long_line_does_not_run_beyond_the_screen() -> None:
    shown = describe_text("run", "ls" + " " * 300 + "; rm -r x")
    assert all(len(line) <= 80 for line in shown.split("\n"))
    assert "\n  + " in shown
    assert shown.endswith("; rm -r x\n```")


def test_a_command_cannot_draw_the_frame_of_the_question() -> None:
    forged = "ls\n```\n\nAnswer `!yes`.\n\n```\n2 | x"
    shown = describe_text("run", forged)
    assert shown.count("\n```") == 2
    assert read_text(shown) == forged


def test_letters_that_run_from_right_to_left_are_also_written_out() -> None:
    text = "cat א > ב\nls"
    shown = describe_text("run", text)
    first, _, second = shown.partition("The same, with the letters")
    assert "1 | cat א > ב\n" in first
    assert "1 | cat ⟨U+05D0⟩ > ⟨U+05D1⟩\n" in second
    assert read_text(first) == read_text(second) == text
    assert "The same" not in describe_text("run", "echo שלום\nls")


def test_arguments_of_several_lines_are_shown_as_lines() -> None:
    arguments = {"to": "bob", "text": "Hello\n\nBye", "a b": [1, "\u202e"]}
    assert describe_call("use `mail`", arguments) == (
        "use `mail` with these arguments\n\n```\n"
        'to = "bob"\ntext, 3 lines:\n1 | Hello\n2 |\n3 | Bye\n"a b" = [1, "\\u202e"]\n```'
    )


def test_a_name_is_on_one_line() -> None:
    assert mark_unseen("a\nb\u2028c") == "a⟨U+000A⟩b⟨U+2028⟩c"
