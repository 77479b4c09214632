"""What is typed into a running process, read as a command line."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.tools.risks import risks_of
from parley.agent.tools.typed_input import rest_of_line, typed_reasons, typed_risks


def risks(text: str, *, before: str | None = "", command: str = "bash") -> frozenset[str]:
    return typed_risks(command, before, text, pty=False)


@pytest.mark.parametrize(
    "text",
    [
        *("rm a\n", "rm a", "ls; rm a\r", "import shutil; shutil.rmtree('a')\n", "$x a\n"),
        *("os.remove('a')\n", "getattr(os, 'rem' 'ove')('a')\n", "exec(x)\n", "chr(114)\n"),
        *("__import__('o' + 's')\n", "\\! rm a\n", "!rm\n", "!!\n", "!-2\n", "^a^b\n", "fc -s\n"),
        *("fs.unlinkSync('a')\n", "vars()['x']()\n", "DROP TABLE a;\n", "'\\x72\\x6d'\n"),
    ],
)
def test_what_deletes_or_cannot_be_read_is_seen(text: str) -> None:
    assert "file-delete" in risks(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "ls\n",
            "y\n",
            "\n",
            "",
            "\x03",
            "\x04",
            "print(1)\n",
            "x = [a for a in b]\n",
            "if a != b:\n",
        ),
        *("SELECT * FROM a;\n", "git status\n", "cd build && make\n", "echo hi!\n", "\tpass\n"),
    ],
)
def test_daily_work_needs_no_word(text: str) -> None:
    assert risks(text) == frozenset()


@given(st.lists(st.integers(0, 30), max_size=8), st.sampled_from(["\n", "\r"]))
def test_a_command_is_seen_in_whatever_pieces_it_is_typed(cuts: list[int], end: str) -> None:
    whole = f"true{end}echo a \\{end}; r''\\{end}m b{end}"
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    before: str | None = ""
    seen: frozenset[str] = frozenset()
    for start, stop in itertools.pairwise(places):
        seen |= risks(whole[start:stop], before=before)
        before = rest_of_line(before, whole[start:stop])
    assert "file-delete" in seen
    assert before == ""


@given(st.text(), st.text())
def test_the_rest_of_a_line_does_not_depend_on_the_pieces(one: str, other: str) -> None:
    assert rest_of_line(rest_of_line("", one), other) == rest_of_line("", one + other)


@given(st.text())
def test_what_is_a_risk_as_a_command_is_one_as_typed(text: str) -> None:
    assert risks_of(text.replace("\r", "\n")) <= risks(text)


def test_a_line_that_is_not_known_is_asked_about_until_it_ends() -> None:
    assert risks("m a", before=None) == {"file-delete"}
    assert typed_reasons(None, "m a", pty=False) == (
        "It is not known what was typed on this line before.",
    )
    assert rest_of_line(None, "m a") is None
    assert rest_of_line(None, "m a\nls") == "ls"
    assert rest_of_line("", "a" * 30_000) is None


def test_what_the_process_was_begun_with_counts_too() -> None:
    assert risks("a\n", command="xargs rm") == {"file-delete"}
    assert risks("r\n", command='read a; read b; sh -c "$a$b"') == {"file-delete"}
    assert risks("hello\n", command="mail bob") == {"email-send"}
