"""Audit records of tool calls: those that change something, with their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from parley import audit
from parley.profiles.scope import scoped_profile
from parley.protocol import person_of

if TYPE_CHECKING:
    from parley.agent.tools.base import Prepared, ToolContext

__all__ = ["PRIVATE_TEXTS", "record_call"]

# Every other tool is recorded, also one that is not known here yet.
_READS: Final = frozenset(
    {"clarify", "list_files", "now", "read_file", "read_skill", "search_files"}
    | {"session_search", "todo", "web_fetch", "web_search"}
)
_ACTIONS: Final[Mapping[str, frozenset[str]]] = {
    "memory": frozenset({"add", "update", "forget"}),
    "process": frozenset({"kill", "write"}),
    "schedule": frozenset({"add", "cancel"}),
}
# What people wrote or may want to be forgotten is known again by its digest, and not readable.
PRIVATE_TEXTS: Final[Mapping[str, frozenset[str]]] = {
    "delegate_task": frozenset({"goal"}),
    "edit_file": frozenset({"old", "new"}),
    "memory": frozenset({"text"}),
    "remember": frozenset({"text"}),
    "remind": frozenset({"text"}),
    "schedule": frozenset({"text"}),
    "send_message": frozenset({"text"}),
    "write_file": frozenset({"content"}),
}
_NONE: Final[frozenset[str]] = frozenset()


async def record_call(prepared: Prepared, context: ToolContext) -> str:
    """Record a call that changes something, before it is run.

    Returns why it may not be run; empty when it may, as always unless the settings want it else.
    """
    name = prepared.call.name
    profile = scoped_profile()
    if name in _READS or profile is None:
        return ""
    arguments = prepared.arguments.model_dump(mode="json", exclude_none=True)
    actions = _ACTIONS.get(name)
    if actions is not None and arguments.get("action") not in actions:
        return ""
    texts = PRIVATE_TEXTS.get(name, _NONE)
    fields: dict[str, Any] = {
        "who": context.hands.person if context.hands is not None else person_of(context.source),
        "origin": context.source.platform,
        "tool": name,
        "arguments": {
            key: _digested(value) if key in texts else value for key, value in arguments.items()
        },
        "call": context.call,
        "lane": context.session_key,
    }
    if audit.must_record(profile):
        return await audit.record_durably("tool.called", profile=profile, **fields)
    audit.record("tool.called", profile=profile, **fields)
    return ""


def _digested(value: object) -> object:
    from parley.audit.masking import digested

    return digested(value) if isinstance(value, str) else value
