"""What a model is asked, and that it stays within bounds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from parley.agent.prompt import mend
from parley.agent.tokens import estimate_tokens
from parley.memory.archiving import with_archived
from parley.memory.asking import (
    KINDS,
    Task,
    known_facts,
    said_by_people,
    shortened,
    task_text,
)
from parley.protocol import Attachment, ChatMessage, ToolCall
from parley.storage.memory import Fact
from tests.memory.scene import a_line

_ANN = a_line(11, 1, "I moved\nto Graz " + "and so on " * 50)
_BOB = a_line(12, 2, "I did not", person="test:bob")


def _fact(id: int, text: str) -> Fact:
    return Fact(id, "person:test:ann", "place", text, 0.9, "learned", "test:ann", id, id)


def test_the_task_lists_what_facts_may_come_from_and_what_is_known() -> None:
    text = task_text(Task(said=(_ANN,), known=(_fact(3, "Ann lives in Wien."),)))
    assert "\n- 3 (place): Ann lives in Wien." in text
    [line] = [line for line in text.splitlines() if line.startswith("- 11 (")]
    assert line.startswith("- 11 (2023-11-14): I moved to Graz and so on")
    assert len(line) < 130
    assert all(kind in text for kind in KINDS)
    assert "summary" not in text
    assert "test:ann" not in text


def test_who_spoke_is_named_where_several_do() -> None:
    text = task_text(Task(said=(_ANN, _BOB)))
    assert "- 11 (test:ann, 2023-11-14): " in text
    assert "- 12 (test:bob, 2023-11-14): I did not" in text


def test_a_fold_asks_for_a_summary_and_gives_the_one_so_far() -> None:
    text = task_text(Task(fold=True, summary="- Ann plans a trip.", words=77))
    assert '"summary"' in text
    assert "77 words" in text
    assert "- Ann plans a trip." in text
    assert "are empty this time" in text


def test_only_what_people_wrote_is_theirs() -> None:
    report = a_line(1, 1, ChatMessage("user", "[Task t1 is done.]", note="internal"))
    reply = a_line(2, 1, ChatMessage("assistant", "I did it"))
    nobody = a_line(3, 2, "from nowhere", person="")
    picture = a_line(4, 3, "  ")
    assert said_by_people([report, reply, nobody, picture, _ANN]) == (_ANN,)


def test_what_they_speak_of_is_known_before_what_is_newest() -> None:
    facts = [_fact(id, f"Fact {id} is about nothing at all.") for id in range(1, 200)]
    facts[4] = _fact(5, "Ann lived in Graz once.")
    chosen = known_facts(facts, [_ANN])
    assert len(chosen) == 60
    assert [fact.id for fact in chosen[:2]] == [5, 141]
    assert len(known_facts(facts, [_ANN], most_characters=300)) < 12


_MESSAGES = st.lists(
    st.sampled_from(("user", "assistant", "call")).flatmap(
        lambda role: st.integers(1, 20_000).map(lambda size: (role, size))
    ),
    min_size=1,
    max_size=8,
)


@given(told=_MESSAGES, most=st.integers(0, 6_000))
def test_a_turn_that_is_too_long_is_shortened_and_stays_well_formed(
    told: list[tuple[str, int]], most: int
) -> None:
    messages: list[ChatMessage] = []
    for number, (role, size) in enumerate(told):
        if role == "call":
            call = ToolCall(f"c{number}", "look", {"what": "x" * size})
            messages.append(ChatMessage("assistant", "", (call,)))
            messages.append(ChatMessage("tool", "r" * size, tool_call_id=f"c{number}"))
        else:
            file = Attachment("a.txt", "text/plain", "/a.txt", size)
            messages.append(ChatMessage(role, "w" * size, attachments=(file,)))  # type: ignore[arg-type]
    less = shortened(messages, most, estimate_tokens)
    if less is not None:
        assert sum(estimate_tokens(message.size) for message in less) <= most
        assert len(mend(less)) == len(less)


def test_at_last_the_tools_part_in_a_turn_is_left_out() -> None:
    messages = [ChatMessage("user", "look everywhere")]
    for number in range(50):
        call = ToolCall(f"c{number}", "look", {"what": "x" * 200})
        messages.append(ChatMessage("assistant", f"step {number}", (call,)))
        messages.append(ChatMessage("tool", "r" * 200, tool_call_id=f"c{number}"))
    less = shortened(messages, 700, estimate_tokens)
    assert less is not None
    assert mend(less) == less
    assert {message.role for message in less} == {"user", "assistant"}


def test_a_put_away_part_is_told_of_in_one_line() -> None:
    lines = [_ANN, a_line(12, 1, ChatMessage("assistant", "Nice."))]
    once = with_archived("- They met.", lines)
    assert once == (
        "- They met.\n- 2 messages from 2023-11-14 to 2023-11-14 were put away unsummarised; "
        "`session_search` finds them."
    )
    later = [replace(_BOB, at=_BOB.at + 86_400)]
    assert with_archived(once, later) == (
        "- They met.\n- 3 messages from 2023-11-14 to 2023-11-15 were put away unsummarised; "
        "`session_search` finds them."
    )
    assert with_archived("", [_BOB]).startswith("- 1 message from 2023-11-14")
