"""The result of a call in words. Pictures and the like are named, never put into the prompt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from parley.agent.foreign import one_line
from parley.agent.tools.base import ToolError

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

__all__ = ["result_text"]

_LONGEST_FAULT: Final = 4_000


def result_text(result: CallToolResult, *, tool: str) -> str:
    """What the model is told; a result that is an error is raised as one."""
    text = "\n".join(part for part in map(_words, result.content) if part)
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if not result.is_error:
        return text or "(no result)"
    cut = text[:_LONGEST_FAULT] + ("…" if len(text) > _LONGEST_FAULT else "")
    raise ToolError(cut or f"{tool} failed and did not say why.")


def _words(block: ContentBlock) -> str:
    if block.type == "text":
        return block.text
    if block.type == "image" or block.type == "audio":  # noqa: PLR1714 - so that types are told apart
        return _named(block.type, block.mime_type, size=len(block.data) * 3 // 4)
    if block.type == "resource_link":
        return _named("link", block.mime_type, name=str(block.uri))
    resource = block.resource
    uri, kind = str(resource.uri), resource.mime_type
    blob = getattr(resource, "blob", None)
    if isinstance(blob, str):
        return _named("file", kind, name=uri, size=len(blob) * 3 // 4)
    return f"[file {one_line(uri, longest=200)}]\n{getattr(resource, 'text', '')}"


def _named(what: str, kind: str | None, *, name: str = "", size: int | None = None) -> str:
    parts = [what, one_line(name, longest=200), one_line(kind or "", longest=60)]
    told = " ".join(part for part in parts if part)
    if size is None:
        return f"[{told}]"
    return f"[{told}, {max(1, size // 1000)} kB, not shown]"
