"""The script of a model, written while it plays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tests.servers.scripted_reply import Reply

__all__ = ["Stage"]


class Stage:
    """Replies in the order they were given; when none is left, the model's own behaviour."""

    def __init__(self) -> None:
        self._next: deque[Reply | Callable[[Mapping[str, Any]], Reply]] = deque()

    def then(self, *replies: Reply | Callable[[Mapping[str, Any]], Reply]) -> None:
        self._next.extend(replies)

    def clear(self) -> None:
        self._next.clear()

    def __call__(self, asked: Mapping[str, Any]) -> Reply | None:
        if not self._next:
            return None
        reply = self._next.popleft()
        return reply if isinstance(reply, Reply) else reply(asked)
