"""Runs as programs see them."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from parley.protocol import (
    ApprovalAsked,
    ChatMessage,
    Failed,
    Final,
    HistoryTrimmed,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    Usage,
    UsageReported,
)
from parley.surfaces.api.wire.runs import (
    RunEventName,
    approval_decided,
    encode_run_event,
    hermes_event,
    run_event,
    run_object,
)

CALL = ToolCall("c1", "weather", {"city": "Bern"})


def test_a_run_that_waits_says_so() -> None:
    run = run_object("run_1", status="queued", session_id="s1", model="default", created_at=1.9)
    assert run == {
        "id": "run_1",
        "run_id": "run_1",
        "object": "run",
        "status": "queued",
        "session_id": "s1",
        "model": "default",
        "created_at": 1,
        "ended_at": None,
        "output": None,
        "usage": None,
        "error": None,
        "last_event_id": 0,
    }


def test_a_run_that_is_over_says_what_came_of_it() -> None:
    run = run_object(
        "run_1",
        status="completed",
        session_id="s1",
        model="default",
        created_at=1,
        ended_at=2.5,
        output="Hello.",
        output_items=[],
        usage=Usage("p", "m", 7, 5, 2),
        last_event_id=9,
    )
    assert (run["output"], run["ended_at"], run["last_event_id"]) == ("Hello.", 2, 9)
    assert run["usage"]["total_tokens"] == 12
    assert run["output_items"] == []


@pytest.mark.parametrize(
    ("event", "name", "fields"),
    [
        (TextDelta("a"), "text.delta", {"delta": "a"}),
        (TextReset(), "text.reset", {}),
        (StepTaken((ChatMessage("assistant", "x"),)), "step", {}),
        (
            ToolStarted(CALL),
            "tool.started",
            {"call_id": "c1", "name": "weather", "arguments": {"city": "Bern"}},
        ),
        (
            ToolFinished(CALL, False),
            "tool.finished",
            {"call_id": "c1", "name": "weather", "ok": False},
        ),
        (
            ApprovalAsked(CALL, "May I?", "a1"),
            "approval.asked",
            {
                "id": "a1",
                "question": "May I?",
                "call": {"id": "c1", "name": "weather", "arguments": {"city": "Bern"}},
                "lasting": True,
            },
        ),
    ],
)
def test_what_happens_in_a_turn_is_told(
    event: TurnEvent, name: str, fields: dict[str, Any]
) -> None:
    told = run_event(event)
    assert told == (name, fields)
    assert told[0] in get_args(RunEventName)
    written = encode_run_event(told[0], "run_1", told[1])
    assert json.loads(written) == {"type": name, "run_id": "run_1", **fields}


@pytest.mark.parametrize(
    "event", [Final("a"), Failed("b"), HistoryTrimmed(1), UsageReported(Usage("p", "m"))]
)
def test_what_is_not_for_those_who_follow_is_not_told(event: TurnEvent) -> None:
    assert run_event(event) is None


def test_a_decision_is_told() -> None:
    assert approval_decided("a1", "approve") == {"id": "a1", "decision": "approve"}


@pytest.mark.parametrize(("lasting", "longer"), [(True, ["session", "always"]), (False, [])])
def test_a_question_in_hermes_names_hides_nothing_and_offers_what_counts(
    lasting: bool, longer: list[str]
) -> None:
    arguments = {"command": "rm a\u202e\u200b\n"}
    call = ToolCall("c1", "terminal", arguments)
    told = run_event(ApprovalAsked(call, "May I?", "a1", lasting=lasting))
    assert told is not None
    name, fields = hermes_event(*told)
    assert (name, fields["choices"]) == ("approval.request", ["once", *longer, "deny"])
    assert fields["command"].isprintable()
    assert json.loads(fields["command"]) == arguments
