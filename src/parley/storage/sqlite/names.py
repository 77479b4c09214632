"""The name of a lane in another namespace; SQL knows it as `renamed`."""

from __future__ import annotations

__all__ = ["renamed"]


def renamed(lane: str, namespace: str) -> str:
    """`agent:<namespace>:…` with this namespace; a name that is not of that form stays."""
    parts = lane.split(":", 2)
    if len(parts) < 3 or parts[0] != "agent":
        return lane
    return f"agent:{namespace}:{parts[2]}"
