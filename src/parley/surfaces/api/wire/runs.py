"""`/v1/runs`: what a run is asked for, what it is, and what happens in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from parley.agent.foreign import shown_exactly
from parley.protocol import (
    ApprovalAsked,
    ReasoningDelta,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    Usage,
)
from parley.surfaces.api.wire.body import check, tame
from parley.surfaces.api.wire.content import Keeper
from parley.surfaces.api.wire.encode import encode
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.ids import check_session_id
from parley.surfaces.api.wire.models import MOST_MESSAGES, WireModel
from parley.surfaces.api.wire.parsed import ParsedRequest
from parley.surfaces.api.wire.responses_in import ItemsRequest, ResponseItem, parse_items
from parley.surfaces.api.wire.responses_out import response_usage

__all__ = [
    "ApprovalRequest",
    "Decision",
    "RunEventName",
    "RunRequest",
    "RunStatus",
    "approval_decided",
    "encode_run_event",
    "hermes_event",
    "read_approval",
    "read_run",
    "run_event",
    "run_object",
]

RunStatus: TypeAlias = Literal[
    "queued", "running", "waiting_for_approval", "completed", "failed", "cancelled"
]
RunEventName: TypeAlias = Literal[
    "run.started",
    "run.resumed",
    "reasoning.delta",
    "text.delta",
    "text.reset",
    "step",
    "tool.started",
    "tool.finished",
    "approval.asked",
    "approval.decided",
    "run.completed",
    "run.failed",
    "run.cancelled",
]
Decision: TypeAlias = Literal["approve", "deny"]
_Items: TypeAlias = Annotated[list[ResponseItem], Field(max_length=MOST_MESSAGES, fail_fast=True)]


# ── in ────────────────────────────────────────────────────────────────────────────────────────


class RunRequest(ItemsRequest):
    """Work that goes on without its client, and after a restart."""

    session_id: str | None = Field(
        None, description="The conversation it belongs to; without one, a new one."
    )
    stream: bool | None = Field(None, description="Not possible: follow the run's events.")
    conversation_history: _Items | None = Field(
        None, description="What was said before `input`, as Hermes names it."
    )


class ApprovalRequest(WireModel):
    """The answer to a question whether a tool may be used."""

    approval_id: str | None = Field(
        None,
        description="The `id` of the question; with `choice` it may be left out.",
        min_length=1,
        max_length=256,
    )
    decision: Decision | None = None
    choice: Literal["once", "session", "always", "deny"] | None = Field(
        None, description="Hermes' form of `decision` and `scope`."
    )
    scope: Literal["once", "session", "always"] = Field(
        "once", description="How far a yes reaches: for this exact call, once or from now on."
    )


def read_run(body: object, keep: Keeper, *, continued: bool = False) -> ParsedRequest:
    """What the program asks for; raises `BadRequest`."""
    asked = check(RunRequest, tame(body))
    if asked.stream:
        raise BadRequest(
            "A run is not streamed; follow /v1/runs/{id}/events.",
            param="stream",
            code="unsupported_parameter",
        )
    session_id = check_session_id(asked.session_id) if asked.session_id is not None else None
    return parse_items(
        asked,
        keep,
        continued=continued or session_id is not None,
        stream=False,
        store=True,
        session_id=session_id,
        before=asked.conversation_history or (),
    )


def read_approval(body: object) -> ApprovalRequest:
    """Which question is answered, and how; raises `BadRequest`."""
    answer = check(ApprovalRequest, tame(body))
    if (answer.decision is None) == (answer.choice is None):
        raise BadRequest("Send either `decision` or `choice`.", param="decision")
    if answer.choice is None and answer.approval_id is None:
        raise BadRequest("`approval_id` is missing.", param="approval_id")
    if answer.choice is None:
        return answer
    if answer.choice == "deny":
        return answer.model_copy(update={"decision": "deny"})
    return answer.model_copy(update={"decision": "approve", "scope": answer.choice})


# ── out ───────────────────────────────────────────────────────────────────────────────────────


def run_object(
    run_id: str,
    *,
    status: RunStatus,
    session_id: str,
    model: str,
    created_at: float,
    ended_at: float | None = None,
    output: str | None = None,
    output_items: list[dict[str, Any]] | None = None,
    usage: Usage | None = None,
    error: dict[str, Any] | None = None,
    last_event_id: int = 0,
) -> dict[str, Any]:
    """The run as it stands. `output_items` hold the calls that the program is to make."""
    run: dict[str, Any] = {
        "id": run_id,
        "run_id": run_id,
        "object": "run",
        "status": status,
        "session_id": session_id,
        "model": model,
        "created_at": int(created_at),
        "ended_at": None if ended_at is None else int(ended_at),
        "output": output,
        "usage": response_usage(usage),
        "error": error,
        "last_event_id": last_event_id,
    }
    if output_items is not None:
        run["output_items"] = output_items
    return run


def run_event(event: TurnEvent) -> tuple[RunEventName, dict[str, Any]] | None:
    """What of a turn is told to those who follow its run; its beginning and end are not of it."""
    match event:
        case TextDelta(text):
            return "text.delta", {"delta": text}
        case ReasoningDelta(text):
            return "reasoning.delta", {"delta": text}
        case TextReset():
            return "text.reset", {}
        case StepTaken():
            return "step", {}
        case ToolStarted(call):
            return "tool.started", {
                "call_id": call.id,
                "name": call.name,
                "arguments": dict(call.arguments),
            }
        case ToolFinished(call, ok):
            return "tool.finished", {"call_id": call.id, "name": call.name, "ok": ok}
        case ApprovalAsked(call, question, approval_id, lasting):
            return "approval.asked", {
                "id": approval_id,
                "question": question,
                "call": _call(call),
                "lasting": lasting,
            }
        case _:
            return None


_HERMES_NAMES: Final[Mapping[str, str]] = {
    "text.delta": "message.delta",
    "tool.finished": "tool.completed",
    "approval.asked": "approval.request",
    "approval.decided": "approval.responded",
}


def hermes_event(name: str, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """An event in Hermes' names. What Hermes has no name for keeps ours."""
    named = _HERMES_NAMES.get(name, name)
    told: dict[str, Any] = {"event": named, **fields}
    match name:
        case "tool.started":
            told |= {"tool": fields["name"], "preview": encode(fields["arguments"]).decode()}
        case "tool.finished":
            told |= {"tool": fields["name"], "error": not fields["ok"]}
        case "approval.asked":
            longer = ["session", "always"] if fields.get("lasting", True) else []
            told |= {"request_id": fields["id"], "description": fields["question"]}
            # Shown to people: JSON that says the same, with nothing in it that could be missed.
            command = shown_exactly(encode(fields["call"]["arguments"]).decode())
            told |= {"command": command, "choices": ["once", *longer, "deny"]}
        case "approval.decided":
            told |= {"request_id": fields["id"]}
        case "run.failed":
            told |= {"error": (fields.get("error") or {}).get("message", "")}
    return named, told


def approval_decided(approval_id: str, decision: Decision) -> dict[str, Any]:
    """The data of `approval.decided`."""
    return {"id": approval_id, "decision": decision}


def encode_run_event(name: str, run_id: str, fields: Mapping[str, Any]) -> bytes:
    """The data of an event as JSON, with its name for clients that see nothing else."""
    return encode({"type": name, "run_id": run_id, **fields})


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}
