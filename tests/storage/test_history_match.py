"""Which part of a program's history is stored already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from parley.protocol import ChatMessage, ToolCall
from parley.storage.history_match import count_known


def said(text: str, **more: object) -> ChatMessage:
    return ChatMessage("assistant", text, **more)  # type: ignore[arg-type]


def asked(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def result(id: str, text: str = "done") -> ChatMessage:
    return ChatMessage("tool", text, tool_call_id=id)


def calls(*ids: str) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(id, "look", {}) for id in ids)


def known(
    told: Sequence[ChatMessage],
    stored: Sequence[ChatMessage],
    rest: Sequence[ChatMessage] = (),
    *,
    whole: bool = False,
    cut: bool = False,
) -> int | None:
    return count_known(told, reversed(stored), asked=rest, whole=whole, cut=cut)


A = (asked("one"), said("first"), asked("two"), said("second"))
OURS = (asked("one"), said("I look.", tool_calls=calls("x")), result("x"), said("first"))


@pytest.mark.parametrize(
    ("told", "stored", "more", "found"),
    [
        (A, A, {}, 4),
        (A[2:], A, {}, 2),
        (A[3:], A, {}, 1),
        (A[2:], A, {"whole": True}, None),
        (A[:2], A, {}, None),
        (A, A[2:], {}, None),
        (A, A[2:], {"cut": True}, 4),
        (A, A[2:], {"whole": True}, 4),
        ((*A, asked("x"), said("y")), A, {}, 4),
        ((), A, {"whole": True}, None),
        (A[:1], (asked("one"), said("I could not.", note="failed")), {}, 1),
        # The client sees neither our calls nor our steps.
        ((asked("one"), said("first")), OURS, {}, 2),
        ((asked("one"), said("I look.\n\nfirst")), OURS, {}, 2),
        ((asked("one"), said("I look."), said("first")), OURS, {}, 3),
        ((asked("one"), said("I look.")), OURS, {}, None),
        # Whoever stopped an answer may have seen less of it.
        ((asked("one"), said("fi")), (asked("one"), said("firs", note="interrupted")), {}, 2),
        ((asked("one"), said("fi")), (asked("one"), said("firs")), {}, None),
    ],
)
def test_what_is_known_is_counted(
    told: Sequence[ChatMessage],
    stored: Sequence[ChatMessage],
    more: dict[str, Any],
    found: int | None,
) -> None:
    assert known(told, stored, **more) == found


def test_calls_of_the_program_are_compared_by_their_ids() -> None:
    call = said("", tool_calls=calls("a", "b"))
    stored = (asked("both?"), call)
    assert known(stored, stored, [result("a"), result("b")]) == 2
    other = said("", tool_calls=calls("a", "c"))
    assert known((asked("both?"), other), stored, [result("a"), result("c")]) is None


def test_results_that_were_stored_before_a_failure_are_not_the_history_before_them() -> None:
    stored = (asked("both?"), said("", tool_calls=calls("a")), result("a", "bad"))
    assert known(stored[:2], stored, [result("a", "good")]) is None
    assert known(stored, stored, [asked("and?")]) == 3


WORDS = st.sampled_from(["a", "b", "", "c d"])
MESSAGES = st.lists(
    st.one_of(st.builds(asked, WORDS), st.builds(said, WORDS), st.builds(result, WORDS)), max_size=8
)


@examples(MESSAGES, MESSAGES)
def test_what_is_told_exactly_is_known_and_what_follows_it_is_new(
    stored: list[ChatMessage], more: list[ChatMessage]
) -> None:
    visible = any(each.text.strip() for each in stored if each.role != "tool")
    found = known(stored, stored)
    assert found == len(stored) or not visible
    counted = known([*stored, *more], stored, whole=True)
    assert counted is None or 0 <= counted <= len(stored) + len(more)
