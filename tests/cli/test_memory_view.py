"""What is remembered, as it is shown in a terminal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.cli._memory_records import commit_record, fact_record, reasons_record
from parley.cli._memory_view import (
    Reasons,
    as_fact,
    as_list,
    as_log,
    as_reasons,
    forgotten_words,
    place_words,
)
from parley.protocol import ChatMessage
from parley.storage.memory import Change, Commit, Fact, Forgotten, Line

_AT = datetime(2026, 11, 1, 10, 22, 5, tzinfo=UTC).timestamp()
_ANN = "matrix:@ann:example.org"
_NASTY = "red \x1b[31mred\x1b]0;title\x07 \x9b2J bell"
_CONTROLS = {chr(code) for code in (*range(32), *range(127, 160))} - {"\n"}
_NAMES = {_ANN: "Ann"}

TEA = Fact(
    12,
    f"person:{_ANN}",
    "preference",
    "Likes tea in the morning",
    0.9,
    "learned",
    _ANN,
    _AT,
    _AT + 60,
    sources=(3, 4),
    session="ab12cd",
)
OFFICE = Fact(7, "profile", "note", "The office is in Oslo", 1.0, "hand", "", _AT, _AT)
TRIP = Fact(
    101, "chat:matrix:group:!r%3Ax", "plan", "They meet on Friday", 0.5, "tool", _ANN, _AT, _AT
)
COFFEE = replace(TEA, id=9, text="Likes coffee", state="replaced", replaced_by=12, sources=())
LEARNED = Commit(5, "learned", f"person:{_ANN}", _AT, "far-model", "a talk", added=1, removed=1)


def test_the_list_is_grouped_by_place_the_profile_first() -> None:
    assert as_list([TRIP, TEA, OFFICE], _NAMES, zone=UTC) == (
        "   id  kind        said        sure  what\n"
        "this profile\n"
        "    7  note        2026-11-01  100%  The office is in Oslo\n"
        "\n"
        f"person {_ANN} (Ann)\n"
        "   12  preference  2026-11-01   90%  Likes tea in the morning\n"
        "\n"
        "chat matrix:group:!r%3Ax\n"
        "  101  plan        2026-11-01   50%  They meet on Friday\n"
    )


def test_what_is_no_longer_so_is_marked() -> None:
    gone = replace(OFFICE, state="removed")
    shown = as_list([COFFEE, gone], _NAMES, zone=UTC)
    assert "Likes coffee (replaced by 12)\n" in shown
    assert "The office is in Oslo (no longer so)\n" in shown


def test_long_words_are_broken_beside_their_columns_or_below_them() -> None:
    long = replace(OFFICE, text="The office is in Oslo, at the end of the long street by the river")
    assert as_list([long], {}, width=80, zone=UTC).splitlines()[2:] == [
        "   7  note  2026-11-01  100%  The office is in Oslo, at the end of the long",
        "                              street by the river",
    ]
    assert as_list([long], {}, width=40, zone=UTC).splitlines()[2:] == [
        "   7  note  2026-11-01  100%",
        "    The office is in Oslo, at the end of",
        "    the long street by the river",
    ]


@given(st.text(max_size=300), st.integers(min_value=40, max_value=200))
def test_no_line_is_wider_than_the_terminal_and_no_word_is_lost(text: str, width: int) -> None:
    shown = as_list([replace(OFFICE, text=text)], {}, width=width, zone=UTC)
    assert all(len(line) <= width for line in shown.splitlines())
    assert not _CONTROLS & set(shown)
    kept = "".join(shown.split("100%", 1)[1].split())
    assert kept == "".join("".join(c for c in text if c not in _CONTROLS - {"\t"}).split())


def test_all_of_a_fact_is_a_line_each() -> None:
    assert as_fact(TEA, [COFFEE], _NAMES, zone=UTC).splitlines() == [
        "id        12",
        "what      Likes tea in the morning",
        f"where     person {_ANN} (Ann)",
        "kind      preference",
        "sure      90%",
        "said      2026-11-01 10:22",
        f"said by   {_ANN} (Ann)",
        "changed   2026-11-01 10:23",
        "origin    learned from what was said",
        "messages  2; `parley memory why 12` shows them",
        "session   ab12cd",
        "replaced  Likes coffee (9, 2026-11-01)",
    ]
    assert "said by   an owner\n" in as_fact(OFFICE, [], {}, zone=UTC)


def test_the_reasons_are_the_words_themselves_and_the_commits() -> None:
    lines = [
        Line(3, 1, ChatMessage("user", "I like tea\n\nin the morning"), _AT, _ANN),
        Line(4, 1, ChatMessage("assistant", "Noted."), _AT + 1, _ANN),
    ]
    reasons = Reasons(TEA, [COFFEE], lines, [LEARNED], {"ab12cd": "Of tea"})
    assert "".join(as_reasons(reasons, _NAMES, zone=UTC)) == (
        "12  Likes tea in the morning\n"
        "\n"
        "It came from what was said in session ab12cd (Of tea).\n"
        "\n"
        f"2026-11-01 10:22:05  {_ANN} (Ann)\n"
        "   I like tea\n"
        "\n"
        "   in the morning\n"
        "\n"
        "2026-11-01 10:22:06  the agent\n"
        "   Noted.\n"
        "\n"
        "It took the place of:\n"
        "  9  2026-11-01  Likes coffee\n"
        "\n"
        "Made by:\n"
        "  id  when              what     change  where\n"
        f"   5  2026-11-01 10:22  learned  +1 −1   person {_ANN} (Ann) · a talk · by far-model\n"
    )


@pytest.mark.parametrize(
    ("fact", "there", "sentence"),
    [
        (TEA, 0, "The messages it came from are gone"),
        (TEA, 1, "in session ab12cd. 1 other message of it is gone.\n"),
        (replace(TEA, sources=(1, 2, 3), session=None), 1, "2 other messages of it are gone.\n"),
        (replace(TEA, sources=(), session=None), 0, "The messages it came from are gone"),
        (OFFICE, 0, "No message lies behind it: it was written by hand.\n"),
    ],
    ids=["all-gone", "one-gone", "two-gone", "session-gone", "by-hand"],
)
def test_what_is_gone_is_said(fact: Fact, there: int, sentence: str) -> None:
    lines = [Line(3, 1, ChatMessage("user", ""), _AT, _ANN)] * there
    shown = "".join(as_reasons(Reasons(fact, [], lines, [], {}), _NAMES, zone=UTC))
    assert sentence in shown
    assert shown.count("(no words)") == there


def test_the_log_says_what_was_undone() -> None:
    undone = replace(LEARNED, id=14, place="profile", undone_by=15, note="", by="owner")
    undone = replace(undone, added=0, removed=0)
    assert place_words("", {}) == "several places"
    assert as_log([undone, LEARNED], {}, zone=UTC).splitlines() == [
        "  id  when              what     change  where",
        "  14  2026-11-01 10:22  learned  ~       this profile · by owner · undone by 15",
        f"   5  2026-11-01 10:22  learned  +1 −1   person {_ANN} · a talk · by far-model",
    ]


@pytest.mark.parametrize(
    ("gone", "sentence"),
    [
        (Forgotten(LEARNED, (), {}), "There was nothing to forget."),
        (
            Forgotten(LEARNED, (1,), {"note": 1}),
            "Forgotten for good: 1 fact (1 note). This cannot be undone.",
        ),
        (
            Forgotten(LEARNED, (1, 2, 3, 4), {"note": 1, "plan": 2}, 2),
            "Forgotten for good: 3 facts (1 note, 2 plan) and 1 earlier one, "
            "with the words of 2 messages. This cannot be undone.",
        ),
    ],
    ids=["nothing", "one", "with-words"],
)
def test_it_is_told_how_much_went(gone: Forgotten, sentence: str) -> None:
    assert forgotten_words(gone) == sentence


def test_nothing_that_was_said_can_steer_the_terminal() -> None:
    bad = replace(TEA, text=_NASTY, kind=_NASTY, person=_NASTY, place=f"chat:{_NASTY}")
    line = Line(3, 1, ChatMessage("user", _NASTY), _AT, _NASTY)
    commit = replace(LEARNED, by=_NASTY, note=_NASTY, place=f"person:{_NASTY}")
    names = {_NASTY: _NASTY}
    shown = [
        as_list([bad], names),
        as_fact(bad, [bad], names),
        "".join(as_reasons(Reasons(bad, [bad], [line], [commit], {"ab12cd": _NASTY}), names)),
        as_log([commit], names),
        place_words(f"person:{_NASTY}", names),
        forgotten_words(Forgotten(commit, (1,), {_NASTY: 1})),
    ]
    assert all("red" in each for each in shown)
    assert not _CONTROLS & set("".join(shown))


def test_scripts_get_every_field_under_a_name_that_stays() -> None:
    assert fact_record(TEA) == {
        "id": 12,
        "place": f"person:{_ANN}",
        "kind": "preference",
        "text": "Likes tea in the morning",
        "confidence": 0.9,
        "origin": "learned",
        "person": _ANN,
        "said_at": "2026-11-01T10:22:05.000+00:00",
        "changed_at": "2026-11-01T10:23:05.000+00:00",
        "sources": [3, 4],
        "session": "ab12cd",
        "state": "current",
        "replaced_by": None,
        "outside": None,
    }
    commit = {
        "id": 5,
        "kind": "learned",
        "place": f"person:{_ANN}",
        "at": "2026-11-01T10:22:05.000+00:00",
        "by": "far-model",
        "note": "a talk",
        "session": None,
        "first": None,
        "last": None,
        "added": 1,
        "removed": 1,
        "undone_by": None,
    }
    assert commit_record(LEARNED) == commit
    change = Change(12, "changed", COFFEE, TEA)
    folded = replace(LEARNED, changes=(change,), summary=("", "Of tea"))
    assert commit_record(folded, whole=True) == commit | {
        "changes": [
            {
                "fact": 12,
                "action": "changed",
                "before": fact_record(COFFEE),
                "after": fact_record(TEA),
            }
        ],
        "summary": {"before": "", "after": "Of tea"},
    }
    line = Line(3, 1, ChatMessage("user", "tea"), _AT, _ANN)
    assert reasons_record(Reasons(TEA, [COFFEE], [line], [LEARNED], {"ab12cd": "Of tea"})) == {
        "fact": fact_record(TEA),
        "replaced": [fact_record(COFFEE)],
        "session": {"id": "ab12cd", "title": "Of tea"},
        "messages": [
            {
                "id": 3,
                "at": "2026-11-01T10:22:05.000+00:00",
                "person": _ANN,
                "role": "user",
                "text": "tea",
            }
        ],
        "commits": [commit],
    }
