"""When two sentences say the same, and when a line tells of a fact."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.storage.wording import Telling, holds, is_outdated, normal_form, without_lines

_WORDS = st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8), min_size=1)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Likes tea.", "likes  TEA"),
        ("The user has a cat", "user has cat"),
        ("Has “a cat”!", "has a cat"),
        ("Alice’s cat", "alice's cat"),
        ("Straße 5", "STRASSE 5"),
        ("ｆｕｌｌ　width", "full width"),
        ("柏林に住んでいる。", "柏林に住んでいる"),
        ("Живёт в Москве!", "живёт в москве"),
    ],
    ids=range(8),
)
def test_these_say_the_same(text: str, same: str) -> None:
    assert normal_form(text) == normal_form(same) != ""


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Writes C", "Writes C#"),
        ("Writes C", "Writes C++"),
        ("At 3.5 degrees", "At 35 degrees"),
        ("At -5 degrees", "At 5 degrees"),
        ("Takes vitamin A", "Takes vitamin"),
        ("住在柏林", "住在巴黎"),
        ("?!", "!"),
        ("🙂", "🙁"),
    ],
    ids=range(8),
)
def test_these_do_not(text: str, other: str) -> None:
    assert normal_form(text) != normal_form(other)


@given(st.text())
def test_a_form_is_empty_only_for_nothing(text: str) -> None:
    assert bool(normal_form(text)) == bool(text.split())


@given(_WORDS)
def test_signs_around_words_and_spaces_make_no_difference(words: list[str]) -> None:
    plain = " ".join(words)
    assert normal_form("“" + ",  ".join(words) + "!”") == normal_form(plain)


@given(st.text(st.sampled_from("aAbt ,.!'-#the"), max_size=20))
def test_a_form_is_its_own_form(text: str) -> None:
    assert normal_form(normal_form(text)) == normal_form(text)


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        ("Lives in Berlin", "- They live in Berlin and work from home."),
        ("The user's name is Alice Brown", "Alice Brown asked about trains."),
        ("User is 42", "They are 42 years old."),
        ("Alice's sister is Jane", "Jane, the sister of Alice, came by."),
        ("Wi-Fi password is on Elm-Street 9", "the wi-fi password: see elm-street 9"),
        ("住在柏林", "她住在柏林，喜欢喝茶"),
        ("is ok", "All is ok here"),
    ],
    ids=range(7),
)
def test_a_line_tells_of_a_fact(fact: str, line: str) -> None:
    assert holds(line, fact)


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        ("Lives in Berlin", "They live in Paris."),
        ("Lives in Berlin", "A trip to Berlin was planned."),
        ("User is 42", "They are 421 years old, users say."),
        ("Allergic to peanuts and shellfish", "Shellfish was on the menu."),
        ("is ok", "is okay"),
        ("Lives in Berlin", ""),
    ],
    ids=range(6),
)
def test_a_line_does_not(fact: str, line: str) -> None:
    assert not holds(line, fact)


def test_only_those_lines_go() -> None:
    text = "- Lives in Berlin.\n- Likes tea.\n\n- Has moved to Berlin, where they live now.\n"
    assert without_lines(text, Telling(["User lives in Berlin"])) == "- Likes tea.\n\n"
    assert without_lines(text, Telling([])) == text


@given(_WORDS)
def test_a_fact_is_told_of_by_itself(words: list[str]) -> None:
    text = " ".join(words)
    assert holds(text, text)
    assert without_lines(text, Telling([text])) == ""


@pytest.mark.parametrize(
    ("line", "outdated"),
    [
        ("- Ann's cat is called Miso.", True),
        ("- Ann's cat is called Mochi, not Miso.", False),
        ("- The cat Mochi sleeps all day.", False),
        ("- The trip is planned.", False),
    ],
    ids=["old", "both", "new", "other"],
)
def test_a_line_is_outdated_when_it_tells_what_was_corrected(line: str, outdated: bool) -> None:
    assert is_outdated(line, "Ann's cat is called Miso", "Ann's cat is called Mochi") is outdated


def test_a_correction_that_only_adds_leaves_lines_alone() -> None:
    assert not is_outdated("- Lives in Berlin", "Lives in Berlin", "Lives in Berlin Mitte")


_PIECES = st.sampled_from(
    [
        "Berlin",
        "lives",
        "living",
        "in",
        "the",
        "a",
        "C#",
        "5",
        "user",
        "that",
        "ßtraße",
        "東京",
        "は",
        "…",
    ]
)
_SENTENCES = st.lists(_PIECES, max_size=6).map(" ".join) | st.text(max_size=12)


@given(line=_SENTENCES, facts=st.lists(_SENTENCES, max_size=5))
def test_many_facts_are_looked_for_as_one_is(line: str, facts: list[str]) -> None:
    assert Telling(facts)(line) == any(holds(line, fact) for fact in facts)


def test_many_facts_are_looked_for_in_many_lines_in_no_time() -> None:
    """Nothing else is stored meanwhile."""
    tells = Telling(f"Their badge number {n} is kept in the drawer {n * 7}" for n in range(500))
    began = time.process_time()
    assert not any(tells(f"- They spoke of item {n} and what became of it") for n in range(5_000))
    assert time.process_time() - began < 5.0
