"""What is made of a model's answer: as much as can be trusted, and no more."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.providers.base import ModelReply
from parley.memory.answer import Answer, Nonsense, read_answer
from parley.memory.asking import KINDS, Task
from parley.protocol import ToolCall, Usage
from parley.storage.memory import Fact
from tests.memory.scene import a_line

_SAID = (
    a_line(11, 1, "My daughter Mia plays the cello"),
    a_line(12, 2, "and we moved to Graz last week", person="test:bob"),
    a_line(13, 3, "Do forget about Wien"),
)


def _known(id: int, text: str, person: str = "test:ann") -> Fact:
    return Fact(id, "person:test:ann", "person", text, 0.9, "learned", person, 1.0, 1.0)


_KNOWN = (_known(3, "Ann lives in Wien."), _known(4, "Carl likes tea.", "test:carl"))
_LEARN = Task(said=_SAID, known=_KNOWN)
_FOLD = Task(said=_SAID, known=_KNOWN, fold=True, words=20)


def _read(text: str, task: Task = _LEARN) -> Answer | Nonsense:
    return read_answer(ModelReply(text, Usage("p", "m")), task)


def _answer(text: str, task: Task = _LEARN) -> Answer:
    found = _read(text, task)
    assert isinstance(found, Answer), found
    return found


def _facts(*facts: object, **more: object) -> str:
    return json.dumps({"facts": facts, **more})


_MIA = {"text": "Mia plays the cello.", "kind": "relation", "confidence": 0.8, "sources": [11]}


@pytest.mark.parametrize(
    "text",
    [
        _facts(_MIA),
        f"```json\n{_facts(_MIA)}\n```",
        f"Here you are:\n{_facts(_MIA)}\nI hope {{this}} helps.",
        f"<think>maybe {_facts()}?</think>{_facts(_MIA)}",
        f'The form is {{"facts": []}}. And so: {_facts(_MIA)}',
    ],
    ids=["bare", "fenced", "words-around", "thoughts", "an-example-first"],
)
def test_an_answer_is_found_in_what_stands_around_it(text: str) -> None:
    [fact] = _answer(text).facts
    assert (fact.text, fact.kind, fact.confidence) == ("Mia plays the cello.", "relation", 0.8)
    assert (fact.sources, fact.person, fact.said_at) == ((11,), "test:ann", _SAID[0].at)


@pytest.mark.parametrize(
    "text",
    [
        *("", "  \n", "I will remember that.", "[1, 2]", '["facts"]', '{"fact": []}'),
        *('{"facts": {}}', '{"facts": "none"}', '{"facts": [', "{" * 300, "[" * 100_000),
        '{"facts": [{"text": "x',
    ],
    ids=[f"n{number}" for number in range(12)],
)
def test_nonsense_is_told_from_an_answer(text: str) -> None:
    found = _read(text)
    assert isinstance(found, Nonsense)
    assert found.reason


def test_a_tool_call_is_nonsense() -> None:
    reply = ModelReply(_facts(_MIA), Usage("p", "m"), (ToolCall("1", "look"),))
    assert isinstance(read_answer(reply, _LEARN), Nonsense)


def test_a_fold_needs_a_summary() -> None:
    empty: tuple[object, ...] = ("", "  ", None, 7, [])
    for summary in empty:
        assert isinstance(_read(_facts(summary=summary), _FOLD), Nonsense)
    assert _answer(_facts(summary="- Mia plays."), _FOLD).summary == "- Mia plays."
    assert _answer(_facts(summary=["- one", "- two"]), _FOLD).summary == "- one\n- two"
    assert _answer(_facts(summary="- not asked for")).summary == ""


def test_nothing_to_remember_is_an_answer() -> None:
    assert _answer("{}") == Answer()
    assert _answer('{"facts": []}') == Answer()
    assert _answer('{"forget": []}') == Answer()


@pytest.mark.parametrize(
    "broken",
    [
        "Mia",
        {"text": 5},
        {"text": " "},
        {"kind": "person", "sources": [11]},
        {**_MIA, "confidence": "high"},
        {**_MIA, "confidence": float("nan")},
        {**_MIA, "confidence": True},
        {**_MIA, "kind": ["person"]},
    ],
    ids=[f"b{number}" for number in range(8)],
)
def test_a_broken_fact_is_left_out_and_the_others_stay(broken: object) -> None:
    facts = _answer(_facts(broken, _MIA)).facts
    assert [fact.text for fact in facts] == ["Mia plays the cello."]


def test_what_is_out_of_bounds_is_brought_back() -> None:
    [fact] = _answer(_facts({**_MIA, "kind": " Family ", "confidence": 17})).facts
    assert (fact.kind, fact.confidence) == ("other", 1.0)
    [fact] = _answer(_facts({**_MIA, "kind": "PLAN", "confidence": -3})).facts
    assert (fact.kind, fact.confidence) == ("plan", 0.0)
    [fact] = _answer(_facts({**_MIA, "text": "Mia\n plays\u202e " + "x" * 900})).facts
    assert len(fact.text) == 500
    assert fact.text.startswith("Mia plays x")
    many = [{**_MIA, "text": f"Mia plays {number}."} for number in range(90)]
    assert len(_answer(_facts(*many)).facts) == 50


def test_only_ids_that_were_offered_count() -> None:
    [fact] = _answer(
        _facts({**_MIA, "sources": [99, "11", 12.0, True], "replaces": [3, 4, 77]})
    ).facts
    assert fact.sources == (11,)
    assert fact.replaces == (3, 4)
    assert _answer(_facts(forget=[3, 99, "3"])).forgets == (3,)


def test_nobody_takes_back_what_another_said() -> None:
    assert _answer(_facts(forget=[4, 3])).forgets == (3,)


def test_what_is_forgotten_is_not_replaced_as_well() -> None:
    answer = _answer(_facts({**_MIA, "replaces": [3]}, forget=[3]))
    assert answer.forgets == (3,)
    assert answer.facts[0].replaces == ()


def test_a_fact_without_a_receipt_gets_the_messages_that_speak_of_it() -> None:
    [fact] = _answer(_facts({"text": "They live in Graz now.", "sources": "the second"})).facts
    assert (fact.sources, fact.person) == ((12,), "test:bob")
    [fact] = _answer(_facts({"text": "Mia has a cello."})).facts
    assert fact.sources == (11,)


def test_a_fact_that_nobody_spoke_of_is_left_out() -> None:
    assert _answer(_facts({"text": "Peter collects stamps.", "sources": [1]})).facts == ()


def test_secrets_are_left_out_and_masked() -> None:
    key = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q"
    answer = _answer(
        _facts({**_MIA, "text": f"Mia's key is {key}."}, _MIA, summary=f"- The key is {key}."),
        _FOLD,
    )
    assert [fact.text for fact in answer.facts] == ["Mia plays the cello."]
    assert key not in answer.summary
    assert answer.summary.startswith("- The key is")


def test_a_summary_is_cut_at_a_line() -> None:
    lines = "\n".join(f"- line number {number}" for number in range(100))
    summary = _answer(_facts(summary=lines), _FOLD).summary
    assert len(summary) <= 20 * 12
    assert lines.startswith(summary)
    assert lines[len(summary)] == "\n"


def test_where_nothing_was_said_nothing_is_taken() -> None:
    task = Task(fold=True)
    answer = _answer(_facts(_MIA, forget=[3], summary="- s"), task)
    assert answer == Answer(summary="- s")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["facts", "forget", "summary", "text", "kind", "confidence", "sources", "replaces"]
            )
            | st.text(max_size=3),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(value=_JSON, task=st.sampled_from([_LEARN, _FOLD, Task(), Task(fold=True)]))
def test_whatever_it_says_what_is_taken_is_sound(value: Any, task: Task) -> None:
    _check(_read(json.dumps(value), task), task)


@given(
    facts=st.lists(
        st.fixed_dictionaries(
            {"text": st.text(min_size=1)},
            optional={"kind": _JSON, "confidence": _JSON, "sources": _JSON, "replaces": _JSON},
        ),
        max_size=60,
    ),
    forget=_JSON,
)
def test_whatever_its_facts_are_what_is_taken_is_sound(facts: list[Any], forget: Any) -> None:
    _check(_read(json.dumps({"facts": facts, "forget": forget}), _LEARN), _LEARN)


@pytest.mark.parametrize(
    "confidence", [10**400, -(10**400), float("inf"), 1e308], ids=["large", "small", "inf", "float"]
)
def test_no_confidence_is_too_large(confidence: float) -> None:
    [fact] = _answer(_facts(_MIA | {"confidence": confidence})).facts
    assert fact.confidence in (0.0, 1.0)


@pytest.mark.parametrize(
    "text",
    [
        "<think>" * 25_000,
        json.dumps({"summary": "passwords=" * 15_000}),
        json.dumps({"summary": "so", "facts": [{"text": f"zq{n}"} for n in range(6_000)]}),
    ],
    ids=["thoughts-without-end", "a-summary-of-secrets", "facts-without-sources"],
)
def test_no_answer_takes_long_to_read(text: str) -> None:
    said = tuple(a_line(number, 1, "well then " * 1_000) for number in range(1, 31))
    began = time.process_time()
    _read(text, Task(said=said, fold=True, words=400))
    assert time.process_time() - began < 5.0


def test_nobody_has_forgotten_what_another_said_only_because_both_speak() -> None:
    said = (
        a_line(11, 1, "My daughter Mia plays the cello"),
        a_line(12, 2, "Forget where Ann lives!", person="test:bob"),
    )
    assert _answer(_facts(forget=[3]), Task(said=said, known=_KNOWN)).forgets == ()
    assert _answer(_facts(forget=[3]), Task(said=said[:1], known=_KNOWN)).forgets == (3,)


@given(text=st.text(st.sampled_from('{}[]":,`abc \\u12\n') | st.characters()))
def test_no_text_brings_it_down(text: str) -> None:
    _check(_read(text), _LEARN)


def _check(found: Answer | Nonsense, task: Task) -> None:
    if isinstance(found, Nonsense):
        return
    assert len(found.facts) <= 50
    assert set(found.forgets) <= {fact.id for fact in task.known}
    assert bool(found.summary) == task.fold
    for fact in found.facts:
        assert 0 < len(fact.text) <= 500
        assert fact.kind in KINDS
        assert 0.0 <= fact.confidence <= 1.0
        assert fact.sources
        assert set(fact.sources) <= {line.id for line in task.said}
        assert set(fact.replaces) <= {fact.id for fact in task.known}
        assert fact.person in {line.person for line in task.said}
        (fact.text + found.summary).encode()
