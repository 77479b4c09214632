"""Items as they are kept and shown: each with an id, in one form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from parley.surfaces.api.wire.ids import new_id

if TYPE_CHECKING:
    from parley.surfaces.api.wire.responses_in import ResponseItem

__all__ = ["is_reference", "item_list", "kept_items"]

_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
}
_ID: Final = re.compile(r"[A-Za-z]{1,16}_[A-Za-z0-9_-]{1,128}")


def kept_items(given: str | Iterable[ResponseItem]) -> tuple[dict[str, Any], ...]:
    """What a program gave, as it is shown again. An id that it gave stays, unless it came twice."""
    if isinstance(given, str):
        text = {"type": "input_text", "text": given}
        return (
            {
                "id": new_id("msg"),
                "type": "message",
                "status": "completed",
                "role": "user",
                "content": [text],
            },
        )
    taken: set[str] = set()
    items = []
    for item in given:
        id = item.id if item.id and _ID.fullmatch(item.id) and item.id not in taken else None
        id = id or new_id(_PREFIXES.get(item.type, "item"))
        taken.add(id)
        items.append(_kept(item, id))
    return tuple(items)


def _kept(item: ResponseItem, id: str) -> dict[str, Any]:
    made: dict[str, Any] = {"id": id, **item.model_dump(exclude_none=True, exclude={"id"})}
    if item.type == "reasoning":
        return {"summary": [], **made}
    made["status"] = "completed"
    if item.type == "message":
        kind = "output_text" if item.role == "assistant" else "input_text"
        content = made.get("content", "")
        parts = [{"type": kind, "text": content}] if isinstance(content, str) else content
        made["content"] = [_part(part, kind) for part in parts]
    return made


def _part(part: Mapping[str, Any], kind: str) -> dict[str, Any]:
    made = dict(part)
    if made["type"] == "text":
        made["type"] = kind
    if made["type"] == "output_text":
        made = {"annotations": [], "logprobs": [], **made}
    elif made["type"] == "input_image":
        made = {"detail": "auto", **made}
    return made


def is_reference(item: object) -> bool:
    """Whether it only names an item that is kept."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and item.keys() <= {"id", "type"})


def item_list(items: Iterable[Mapping[str, Any]], *, more: bool) -> dict[str, Any]:
    """One page of them."""
    data = list(items)
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": more,
    }
