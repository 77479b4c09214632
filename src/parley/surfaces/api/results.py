"""What is stored of how a request ended: the very object that a program is given again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.surfaces.api import chat, responses, runs
from parley.surfaces.api.records import Ended

__all__ = ["render"]


def render(ended: Ended) -> Mapping[str, Any]:
    match ended.record.kind:
        case "chat":
            return chat.render(ended)
        case "response":
            return responses.render(ended)
        case _:
            return runs.render(ended)
