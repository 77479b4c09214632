"""What several tools need of the gateway's hands."""

from __future__ import annotations

import hashlib

from parley.agent.hands import Hands
from parley.agent.tools.base import ToolContext, ToolError

__all__ = ["lent_hands", "name_of"]


def lent_hands(context: ToolContext) -> Hands:
    if context.hands is None:
        raise ToolError("This works in a running gateway only; do without it here.")
    return context.hands


def name_of(kind: str, context: ToolContext) -> str:
    """The name of what this call begins: the same whenever the call is made again."""
    return f"{kind}_{hashlib.sha256(context.call.encode()).hexdigest()[:12]}"
