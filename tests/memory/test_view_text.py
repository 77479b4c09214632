"""A page of facts, and what a hand changed in it: nothing more and nothing less."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.memory.view_text import END, Merged, Unclear, ViewLine, merge, parse, render
from parley.memory.wording import flat
from parley.storage.memory import Edit, Fact, NewFact
from tests.memory.facts import HERE, a_fact

TEA = a_fact(12, "Prefers tea to coffee.", kind="preference")
CAT = a_fact(3, "Has a cat.", kind="home")
DOG = a_fact(5, "Has a dog.", kind="home")
FACTS = [TEA, CAT, DOG]
PAGE = render(HERE, FACTS)
LAST = PAGE.splitlines()[-1]
NOTHING = Merged(Edit())

words = st.text(
    st.sampled_from("ab[]12-·# *<>!\\`:|\n\r\t\x0b\x0c\x85\u2028_é🙂\x00."), max_size=30
)
some_facts = st.dictionaries(st.integers(1, 10**12), st.tuples(words, words, st.floats())).map(
    lambda found: [
        a_fact(id, text or " ", kind=kind, said_at=said_at)
        for id, (text, kind, said_at) in found.items()
    ]
)


def test_a_page_is_readable_and_in_order() -> None:
    assert PAGE == (
        "# What Parley remembers of telegram:99\n"
        "\n"
        "<!-- Edit freely: change a line, remove it, or add one below a heading. "
        "`[12]` is its number; leave it. -->\n"
        "\n"
        "## home\n"
        "\n"
        "- [3] Has a cat. · 2027-01-15\n"
        "- [5] Has a dog. · 2027-01-15\n"
        "\n"
        "## preference\n"
        "\n"
        "- [12] Prefers tea to coffee. · 2027-01-15\n"
        "\n"
        "<!-- end, as of 2027-01-15 08:00:00.000000 UTC -->\n"
    )
    assert render(HERE, reversed(FACTS)) == PAGE


@given(some_facts)
def test_what_is_written_is_what_is_read(facts: list[Fact]) -> None:
    page = parse(render(HERE, facts))
    expected = [ViewLine(fact.id, flat(fact.kind) or "note", flat(fact.text)) for fact in facts]
    key = lambda line: (line.kind, line.id)  # noqa: E731
    assert list(page.lines) == sorted(expected, key=key)
    assert page.title
    assert page.ended


@given(some_facts)
def test_a_page_that_nobody_touched_is_no_edit(facts: list[Fact]) -> None:
    page = render(HERE, facts)
    assert merge(page, page, facts).is_empty
    assert merge(page, page.replace("\n", "\r\n"), facts).is_empty


@given(some_facts, some_facts)
def test_a_page_of_another_time_is_no_edit_where_either_is_known(
    before: list[Fact], since: list[Fact]
) -> None:
    old, new = render(HERE, before), render(HERE, since)
    assert merge([old, new], old, since).is_empty
    assert merge([old, new], new, since).is_empty
    assert merge([old, new], new, before).is_empty


@given(some_facts, st.data())
def test_only_the_lines_that_a_hand_removed_go(facts: list[Fact], data: st.DataObject) -> None:
    base = render(HERE, facts)
    gone = data.draw(st.sets(st.sampled_from([f.id for f in facts]))) if facts else set()
    lines = [line for line in base.split("\n") if not _has_number(line, gone)]
    assert merge(base, "\n".join(lines), facts) == Merged(Edit(removes=tuple(sorted(gone))))


def _has_number(line: str, ids: set[int]) -> bool:
    return any(line.startswith(f"- [{id}] ") for id in ids)


def edited(*changes: tuple[str, str]) -> str:
    page = PAGE
    for old, new in changes:
        assert old in page
        page = page.replace(old, new)
    return page


@pytest.mark.parametrize(
    ("page", "edit"),
    [
        (
            edited(("tea to coffee", "water to tea")),
            Edit(
                changes={
                    12: NewFact("Prefers water to tea.", kind="preference", person="telegram:99")
                }
            ),
        ),
        (edited(("- [5] Has a dog. · 2027-01-15\n", "")), Edit(removes=(5,))),
        (edited(("[5] Has a dog. · 2027-01-15", "[5]")), Edit(removes=(5,))),
        (
            edited(("## preference\n", "## preference\n\n* Likes rain.\n")),
            Edit(adds=(NewFact("Likes rain.", kind="preference"),)),
        ),
        (
            edited(("## home\n", "## Pets\n")),
            Edit(
                changes={
                    3: NewFact("Has a cat.", kind="pets", person="telegram:99"),
                    5: NewFact("Has a dog.", kind="pets", person="telegram:99"),
                }
            ),
        ),
        (
            PAGE + "\n## work\nKnits\nfor a living\n",
            Edit(adds=(NewFact("Knits for a living", kind="work"),)),
        ),
        (PAGE + "\n- [777] Sings\n", Edit(adds=(NewFact("Sings", kind="preference"),))),
        (
            edited(("- [5]", "- [3] Has a bird.\n- [5]")),
            Edit(adds=(NewFact("Has a bird.", kind="home"),)),
        ),
        (
            edited(("- [3]", "- [3] Has a bird.\n- [3]")),
            Edit(adds=(NewFact("Has a bird.", kind="home"),)),
        ),
        (edited(("## home", "Sings"), ("# What", "# Then")), None),
    ],
    ids=[
        "changed",
        "removed",
        "emptied",
        "added",
        "heading",
        "paragraph",
        "unknown",
        "copied-behind",
        "copied-before",
        "moved",
    ],
)
def test_an_edit_is_what_the_hand_did(page: str, edit: Edit | None) -> None:
    if edit is None:
        edit = Edit(
            adds=(NewFact("Sings"),),
            changes={id: NewFact(f.text, person="telegram:99") for id, f in ((3, CAT), (5, DOG))},
        )
    assert merge(PAGE, page, FACTS) == Merged(edit)


@pytest.mark.parametrize(
    "page",
    [
        edited(("2027-01-15", "1999-12-31")),
        edited((" · 2027-01-15", "")),
        edited(("- [", "  *   [")),
        edited(("tea to coffee", "tea\n  to   coffee")),
        edited(
            ("- [3] Has a cat. · 2027-01-15\n", ""),
            ("- [5]", "- [5] Has a dog.\n- [3] Has a cat.\n- [5]"),
        ),
        edited((LAST, "Has a DOG\n\n" + LAST)),
        edited(("[5] ", "")),
        edited(("<!-- Edit", "<!-- Please\nEdit")),
        edited(("# What Parley remembers of telegram:99", "")),
        PAGE.replace(LAST, ""),
        PAGE.replace(LAST, END),
        edited(("as of 2027-01-15", "as of 2027-13-15")),
        "\ufeff"[1:] + PAGE.replace("\n", "\r\n"),
        PAGE + "\n---\n\n***\n\n-\n",
    ],
    ids=[
        "date",
        "no-date",
        "bullets",
        "wrapped",
        "order",
        "double",
        "numberless",
        "comment",
        "title",
        "end",
        "no-moment",
        "mangled-moment",
        "crlf",
        "rules",
    ],
)
def test_what_means_the_same_is_no_edit(page: str) -> None:
    assert merge(PAGE, page, FACTS) == NOTHING


@pytest.mark.parametrize(
    "page",
    [
        "",
        "\n\n",
        "shopping: milk\n",
        "\x00" * 50,
        *(
            PAGE[: PAGE.index(cut)]
            for cut in ("- [3]", "a cat", "- [5]", "a dog", "- [12]", "coffee")
        ),
        PAGE[: PAGE.index("<!-- Edit")],
    ],
    ids=[
        "empty",
        "blank",
        "other",
        "zeros",
        "cut-0",
        "cut-1",
        "cut-2",
        "cut-3",
        "cut-4",
        "cut-5",
        "cut-6",
    ],
)
def test_a_page_that_was_lost_or_cut_off_removes_nothing(page: str) -> None:
    with pytest.raises(Unclear):
        merge(PAGE, page, FACTS)


def test_a_page_without_lines_but_whole_removes_them_all() -> None:
    assert merge(PAGE, render(HERE, []), FACTS) == Merged(Edit(removes=(3, 5, 12)))


def test_what_the_store_changed_meanwhile_stays_unless_the_hand_changed_it_too() -> None:
    now = [a_fact(12, "Prefers cocoa.", kind="preference"), CAT, a_fact(20, "New here.")]
    assert merge(PAGE, PAGE, now) == NOTHING
    page = edited(("coffee", "milk"))
    changed = NewFact("Prefers tea to milk.", kind="preference", person="telegram:99")
    assert merge(PAGE, page, now) == Merged(Edit(changes={12: changed}))
    without = edited(("- [12] Prefers tea to coffee. · 2027-01-15\n", ""))
    assert merge(PAGE, without, now) == NOTHING


def test_what_went_meanwhile_comes_back_only_in_the_hands_own_words() -> None:
    now = [TEA, CAT]
    assert merge(PAGE, PAGE, now) == NOTHING
    page = edited(("Has a dog", "Has two dogs"))
    assert merge(PAGE, page, now) == Merged(Edit(adds=(NewFact("Has two dogs.", kind="home"),)))


def test_a_page_of_which_nothing_was_written_before_only_adds() -> None:
    page = "# Mine\n\n- Likes rain.\n- [12] Something else\n- [3] Has a cat.\n"
    adds = (NewFact("Likes rain."), NewFact("Something else"))
    for bases in ([], [""], ["", PAGE]):
        found = merge(bases, page, FACTS)
        assert found.edit.removes == ()
        assert found.edit.adds[:1] == adds[:1]
    assert merge([], page, FACTS) == Merged(Edit(adds=adds))


def test_a_secret_is_left_out_with_a_sentence_that_does_not_tell_it() -> None:
    page = edited(("Has a dog.", "The password is hunter2")) + "- PIN: 4711\n- Likes rain.\n"
    found = merge(PAGE, page, FACTS)
    assert found.edit == Edit(adds=(NewFact("Likes rain.", kind="preference"),))
    assert found.problems == (
        "Line [5] looks like a key or password; such things are not remembered.",
        "A new line looks like a key or password; such things are not remembered.",
    )


def test_a_line_that_is_too_long_is_not_cut() -> None:
    with pytest.raises(Unclear, match="longer than 500"):
        merge(PAGE, PAGE + "- " + "long " * 200, FACTS)


# ── pages that were open for long ─────────────────────────────────────────────────────────────

SINCE = 1.8e9 + 60
CORRECTED = a_fact(5, "Has two dogs.", kind="home", at=SINCE)
ADDED = a_fact(20, "Sails.", at=SINCE)
NOW = [TEA, CAT, CORRECTED, ADDED]
CHANGED_ELSEWHERE = (
    "Line [5] was changed elsewhere since this page was opened; it was left as it is."
)


def merged_late(page: str, facts: list[Fact] = NOW) -> Merged:
    """The page as it was is saved over the one that was written since."""
    return merge(render(HERE, facts), page, facts)


def test_an_old_page_removes_nothing_that_it_does_not_know() -> None:
    assert merged_late(PAGE, [*FACTS, ADDED]) == NOTHING
    assert merged_late(edited(("- [3] Has a cat. · 2027-01-15\n", "")), [*FACTS, ADDED]) == Merged(
        Edit(removes=(3,))
    )


def test_an_old_page_brings_no_old_words_back() -> None:
    assert merged_late(PAGE) == Merged(Edit(), (CHANGED_ELSEWHERE,))


@pytest.mark.parametrize(
    "line", ["- [5] Has a hen. · 2027-01-15", "- [5]", "- [5] Has a dog.\n- [5] Has a hen."]
)
def test_what_an_old_page_says_of_a_line_that_was_changed_since_is_told_of(line: str) -> None:
    page = edited(("- [5] Has a dog. · 2027-01-15", line))
    assert merged_late(page) == Merged(Edit(), (CHANGED_ELSEWHERE,))


def test_an_old_page_that_says_what_is_so_since_is_no_edit() -> None:
    assert merged_late(edited(("Has a dog", "Has two dogs"))) == NOTHING
    assert merged_late(edited(("- [5] Has a dog. · 2027-01-15\n", ""))) == NOTHING


def test_what_a_hand_did_to_lines_that_an_old_page_knows_is_taken() -> None:
    page = edited(
        ("- [3] Has a cat. · 2027-01-15\n", "- Has a hen.\n"), ("tea to coffee", "water to tea")
    )
    water = NewFact("Prefers water to tea.", kind="preference", person="telegram:99")
    assert merged_late(page) == Merged(
        Edit((NewFact("Has a hen.", kind="home"),), {12: water}, (3,)), (CHANGED_ELSEWHERE,)
    )


def test_a_page_that_was_written_last_knows_its_lines_whatever_was_learned_since() -> None:
    page = edited(("a dog", "three dogs"), ("- [3] Has a cat. · 2027-01-15\n", ""))
    again = a_fact(3, CAT.text, kind="home", at=SINCE)
    three = NewFact("Has three dogs.", kind="home", person="telegram:99")
    expected = Merged(Edit(changes={5: three}, removes=(3,)))
    assert merge(PAGE, page, [TEA, again, CORRECTED, ADDED]) == expected


@pytest.mark.parametrize("last", [END, "<!-- end, as of yesterday UTC -->"])
def test_a_page_that_does_not_say_how_far_it_knows_is_taken_as_the_one_written_last(
    last: str,
) -> None:
    dog = NewFact("Has a dog.", kind="home", person="telegram:99")
    page = PAGE.replace(LAST, last)
    assert merged_late(page) == Merged(Edit(changes={5: dog}, removes=(20,)))


@given(st.sampled_from([math.nan, math.inf, -1e300, 1e300, 5.0]), st.floats(1.7e9, 1.9e9))
def test_a_page_knows_the_facts_that_it_shows_to_the_last_of_them(odd: float, at: float) -> None:
    facts = [a_fact(1, at=odd), a_fact(2, at=at), a_fact(3, at=at)]
    without = "".join(
        line for line in render(HERE, facts).splitlines(True) if not _has_number(line, {3})
    )
    since = [*facts, a_fact(4, at=2e9)]
    assert merged_late(without, since).edit.removes == (3,)


ids = st.sets(st.integers(1, 30))


@given(ids.filter(bool), ids, ids, ids, ids, st.booleans())
def test_an_old_page_neither_removes_nor_changes_what_is_newer_than_it(
    old: set[int], new: set[int], corrected: set[int], gone: set[int], touched: set[int], both: bool
) -> None:
    opened = render(HERE, [a_fact(id, at=100.0) for id in old])
    now = [
        a_fact(id, f"Since {id}", at=200.0) if id in corrected else a_fact(id, at=100.0)
        for id in sorted(old)
    ] + [a_fact(id + 100, at=300.0) for id in sorted(new)]
    page = "".join(
        line.replace("Fact", "Hand") if _has_number(line, touched) else line
        for line in opened.splitlines(True)
        if not _has_number(line, gone)
    )
    other = [render(HERE, [*now, a_fact(200, at=400.0)])] if both else []
    found = merge([*other, render(HERE, now)], page, now).edit
    assert found.adds == ()
    assert set(found.removes) == (old & gone) - corrected
    assert set(found.changes or {}) == (old & touched) - gone - corrected


def test_no_line_takes_long_to_look_through() -> None:
    long = f"- {'well ' * 200}{'passwords=' * 100_000}"
    began = time.process_time()
    with pytest.raises(Unclear, match="longer than 500"):
        merge(PAGE, PAGE.replace(LAST, f"{long}\n\n{LAST}"), FACTS)
    assert time.process_time() - began < 5.0
