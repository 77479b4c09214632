"""A response that was given before, as the events of a stream. Nothing of it is made anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parley.surfaces.api.wire.encode import encode
from parley.surfaces.api.wire.responses_events import ServerEvent
from parley.surfaces.api.wire.responses_out import reasoning_part, text_part

__all__ = ["events_again"]


def events_again(response: Mapping[str, Any]) -> list[ServerEvent]:
    """All that a client waits for, from the beginning to the whole."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    begun |= {"completed_at": None, "incomplete_details": None}
    told: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
    ]
    for index, item in enumerate(response["output"]):
        told += _item(item, index)
    told.append((f"response.{response['status']}", {"response": dict(response)}))
    return [
        ServerEvent(kind, encode({"type": kind, "sequence_number": number, **fields}))
        for number, (kind, fields) in enumerate(told)
    ]


def _item(item: Mapping[str, Any], index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    place = {"item_id": item["id"], "output_index": index}
    empty: dict[str, Any] = (
        {"arguments": ""} if item["type"] == "function_call" else {"content": []}
    )
    begun = {**item, "status": "in_progress", **empty}
    yield "response.output_item.added", {"output_index": index, "item": begun}
    if item["type"] == "message":
        for number, part in enumerate(item["content"]):
            yield from _text(part["text"], {**place, "content_index": number})
    elif item["type"] == "reasoning":
        for number, part in enumerate(item["content"]):
            yield from _reasoning(part["text"], {**place, "content_index": number})
    else:
        kind, written = "response.function_call_arguments", item["arguments"]
        yield f"{kind}.delta", {**place, "delta": written}
        yield f"{kind}.done", {**place, "name": item["name"], "arguments": written}
    yield "response.output_item.done", {"output_index": index, "item": dict(item)}


def _text(text: str, place: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind, nothing = "response.output_text", {"logprobs": list[Any]()}
    yield "response.content_part.added", {**place, "part": text_part("")}
    if text:
        yield f"{kind}.delta", {**place, "delta": text, **nothing}
    yield f"{kind}.done", {**place, "text": text, **nothing}
    yield "response.content_part.done", {**place, "part": text_part(text)}


def _reasoning(text: str, place: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "response.content_part.added", {**place, "part": reasoning_part("")}
    yield "response.reasoning_text.delta", {**place, "delta": text}
    yield "response.reasoning_text.done", {**place, "text": text}
    yield "response.content_part.done", {**place, "part": reasoning_part(text)}
