"""Where a conversation is cut."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from parley.agent.tokens import estimate_tokens
from parley.memory.cutting import Budget, chunks, fold_point, may_cut, newest_from
from parley.protocol import ChatMessage, ToolCall
from parley.storage.memory import Line
from tests.memory.scene import a_line


def _tokens(lines: Sequence[Line]) -> int:
    return sum(estimate_tokens(line.message.size) for line in lines)


@st.composite
def conversations(draw: st.DrawFn) -> list[Line]:
    """Turns of people, tools, absorbed messages, posts nobody asked for, and failures."""
    shapes = st.lists(
        st.sampled_from(("plain", "tool", "steered", "two", "post", "failed", "handed")),
        max_size=12,
    )
    lines: list[Line] = []

    def add(turn: int, message: ChatMessage) -> None:
        lines.append(a_line(len(lines) + 1, turn, message))

    for turn, shape in enumerate(draw(shapes), 1):
        length = draw(st.integers(1, 400))
        asked = ChatMessage("user", "u" * length)
        said = ChatMessage("assistant", "a" * draw(st.integers(1, 400)))
        call = ChatMessage("assistant", "", (ToolCall(f"c{turn}", "look"),))
        result = ChatMessage("tool", "r" * length, tool_call_id=f"c{turn}")
        told: dict[str, list[ChatMessage]] = {
            "plain": [asked, said],
            "tool": [asked, call, result, said],
            "steered": [asked, call, result, asked, said],
            "two": [asked, asked, said],
            "post": [said],
            "failed": [asked, ChatMessage("assistant", "", note="failed")],
            "handed": [asked, call, asked, result, said],
        }
        for message in told[shape]:
            add(turn, message)
    return lines


def _is_whole(lines: Sequence[Line]) -> bool:
    """Every result has its call before it."""
    calls: set[str] = set()
    for line in lines:
        calls |= {call.id for call in line.message.tool_calls}
        if line.message.role == "tool" and line.message.tool_call_id not in calls:
            return False
    return True


@given(lines=conversations(), fixed=st.integers(0, 600), window=st.integers(64, 4_000))
def test_what_is_folded_is_whole_turns_and_the_rest_is_at_most_half(
    lines: list[Line], fixed: int, window: int
) -> None:
    budget = Budget.of(window)
    keep_from = fold_point(lines, fixed, budget, estimate_tokens)
    if fixed + _tokens(lines) <= budget.tokens:
        assert keep_from is None
        return
    cuts = [index for index in range(1, len(lines)) if may_cut(lines, index)]
    if keep_from is None:
        assert cuts == []
        return
    index = next(at for at, line in enumerate(lines) if line.id == keep_from)
    assert index in cuts
    assert lines[index].message.role == "user"
    assert lines[index - 1].turn != lines[index].turn
    assert _is_whole(lines[index:])
    room = max(0, budget.tokens - fixed) // 2
    assert _tokens(lines[index:]) <= room or index == cuts[-1]
    longer = [cut for cut in cuts if cut < index]
    assert not longer or _tokens(lines[longer[-1] :]) > room  # no more is folded than must be


@given(lines=conversations(), most=st.integers(0, 1_000))
def test_slices_are_whole_turns_that_are_all_of_it(lines: list[Line], most: int) -> None:
    slices = chunks(lines, most, estimate_tokens)
    assert [line for part in slices for line in part] == lines
    for part in slices:
        assert len(part) > 0
        assert _is_whole(part)
        cuts = [index for index in range(1, len(part)) if may_cut(part, index)]
        assert _tokens(part) <= most or not cuts


@given(lines=conversations(), turns=st.integers(1, 4))
def test_the_newest_turns_can_be_kept(lines: list[Line], turns: int) -> None:
    found = newest_from(lines, turns)
    cuts = [line.id for index, line in enumerate(lines) if index and may_cut(lines, index)]
    assert found == (cuts[-turns] if len(cuts) >= turns else None)


def test_a_result_that_comes_behind_the_next_message_stays_with_its_call() -> None:
    call = ChatMessage("assistant", "", (ToolCall("c1", "look"),))
    lines = [
        a_line(1, 1, "first"),
        a_line(2, 1, call),
        a_line(3, 2, "a word in between"),
        a_line(4, 2, ChatMessage("tool", "found", tool_call_id="c1")),
        a_line(5, 2, ChatMessage("assistant", "done")),
        a_line(6, 3, "next"),
    ]
    assert [line.id for index, line in enumerate(lines) if may_cut(lines, index)] == [1, 6]


def test_the_newest_turn_stays_however_long_it_is() -> None:
    lines = [a_line(1, 1, "short"), a_line(2, 2, "x" * 9_000)]
    assert fold_point(lines, 0, Budget.of(1_000), estimate_tokens) == 2
    assert fold_point(lines[1:], 0, Budget.of(1_000), estimate_tokens) is None


def test_a_budget_leaves_room_for_the_reply_and_a_margin() -> None:
    assert Budget.of(8_000).tokens == 8_000 - 2_000 - 500
    assert Budget.of(8_000, max_output=1_000).tokens == 8_000 - 1_000 - 500
    assert Budget.of(8_000, max_output=7_000, margin=0).tokens == 4_000
    assert Budget.of(512).tokens > 0
