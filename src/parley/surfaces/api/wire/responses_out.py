"""`POST /v1/responses`: the answer as one object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from parley.protocol import Failed, Final, ToolCall, Usage
from parley.surfaces.api.wire.encode import call_arguments
from parley.surfaces.api.wire.ids import new_id
from parley.surfaces.api.wire.parsed import ParsedRequest
from parley.surfaces.api.wire.tools import flat_format, tool_choice_object

__all__ = [
    "ItemStatus",
    "ResponseStatus",
    "call_item",
    "incomplete_details",
    "message_item",
    "output_items",
    "reasoning_item",
    "reasoning_part",
    "response_error",
    "response_object",
    "response_outcome",
    "response_status",
    "response_usage",
    "text_part",
]

ResponseStatus: TypeAlias = Literal[
    "queued", "in_progress", "completed", "incomplete", "failed", "cancelled"
]
ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


_CUT = {"reason": "max_output_tokens"}


def response_object(
    response_id: str,
    created: int,
    model: str,
    request: ParsedRequest,
    *,
    status: ResponseStatus,
    output: Sequence[dict[str, Any]] = (),
    usage: Usage | None = None,
    error: dict[str, str] | None = None,
    completed_at: int | None = None,
    incomplete: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The response: what was asked for, and what became of it."""
    wishes = request.wishes
    outcome = response_outcome(
        status,
        output,
        usage=usage,
        error=error,
        completed_at=completed_at,
        incomplete=incomplete,
    )
    conversation = request.conversation
    return {
        "id": response_id,
        "object": "response",
        "created_at": created,
        "background": request.background,
        "conversation": None if conversation is None else {"id": conversation},
        "instructions": request.instructions or None,
        "max_output_tokens": wishes.max_output_tokens,
        "model": model,
        "parallel_tool_calls": wishes.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "temperature": wishes.temperature,
        "text": {"format": flat_format(wishes.response_format)},
        "tool_choice": tool_choice_object(wishes.tool_choice, wishes.tool),
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description or None,
                "parameters": dict(tool.parameters),
                "strict": tool.strict is True,
            }
            for tool in request.tools
        ],
        "top_p": wishes.top_p,
        "truncation": "disabled",
        "user": request.user,
        "metadata": dict(request.metadata),
        **outcome,
    }


def response_outcome(
    status: ResponseStatus,
    output: Sequence[dict[str, Any]] = (),
    *,
    usage: Usage | None = None,
    error: dict[str, str] | None = None,
    completed_at: int | None = None,
    incomplete: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The part of a response that says what became of it."""
    return {
        "status": status,
        "completed_at": completed_at,
        "error": error,
        "incomplete_details": (incomplete or _CUT) if status == "incomplete" else None,
        "output": list(output),
        "usage": response_usage(usage),
    }


def response_status(ending: Final) -> Literal["completed", "incomplete"]:
    return "completed" if ending.complete else "incomplete"


def incomplete_details(ending: Final) -> dict[str, str] | None:
    """Why a reply ends early; None when it does not."""
    if ending.complete:
        return None
    return {"reason": "content_filter"} if ending.filtered else dict(_CUT)


def response_usage(usage: Usage | None) -> dict[str, Any] | None:
    """Tokens as responses count them."""
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def response_error(failed: Failed) -> dict[str, str]:
    """Why there is no answer, with one of the codes that clients know."""
    code = {"rate_limited": "rate_limit_exceeded", "too_long": "invalid_prompt"}
    return {"code": code.get(failed.kind, "server_error"), "message": failed.sentence}


def output_items(ending: Final, *, steps: Iterable[str] = ()) -> list[dict[str, Any]]:
    """What the turn gave: thoughts, texts of earlier steps, the reply, and the calls to make."""
    items = [reasoning_item(new_id("rs"), ending.reasoning)] if ending.reasoning else []
    texts = [text for text in steps if text.strip()]
    items += [message_item(new_id("msg"), text, "completed") for text in texts]
    if ending.text or not ending.calls:
        items.append(message_item(new_id("msg"), ending.text, response_status(ending)))
    items += [call_item(new_id("fc"), call, call_arguments(call)) for call in ending.calls]
    return items


def message_item(item_id: str, text: str | None, status: ItemStatus) -> dict[str, Any]:
    """A message; without a text, one that has only begun."""
    return {
        "id": item_id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [] if text is None else [text_part(text)],
    }


def reasoning_item(
    item_id: str, text: str | None, status: ItemStatus = "completed"
) -> dict[str, Any]:
    """What a model thought, as it wrote it; without a text, one that has only begun."""
    return {
        "id": item_id,
        "type": "reasoning",
        "status": status,
        "summary": [],
        "content": [] if text is None else [reasoning_part(text)],
    }


def reasoning_part(text: str) -> dict[str, Any]:
    return {"type": "reasoning_text", "text": text}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(
    item_id: str, call: ToolCall, arguments: str, status: ItemStatus = "completed"
) -> dict[str, Any]:
    """A call the program is to make, with what is written of its arguments."""
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments,
    }
