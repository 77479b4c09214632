"""What the gateway says of its own accord."""

from __future__ import annotations

from collections.abc import Callable

from parley.protocol import SessionSource
from parley.storage.contract import Draft, SessionRecord

__all__ = ["begun_anew"]


def begun_anew(source: SessionSource) -> Callable[[SessionRecord], Draft]:
    """The note that the last conversation was over, and how to go back to it."""

    def draft(fresh: SessionRecord) -> Draft:
        return Draft(
            dedupe=f"reset:{fresh.id}",
            source=source,
            text="A new conversation: the last one had rested long enough. "
            "`/sessions` lists them, and `/resume 2` goes back to it.",
            kind="notice",
        )

    return draft
