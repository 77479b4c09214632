"""A backend that only repeats what is said, for trying a surface without a model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final as Constant

from parley.backends.base import Mailbox, Standing, Turn
from parley.protocol import Final, TextDelta, TurnEvent

__all__ = ["MockBackend"]

_PIECES: Constant = 4


class MockBackend:
    """Answers `[mock] …` with the person's own words, in a few pieces."""

    @property
    def models(self) -> None:
        return None

    @property
    def calibration(self) -> None:
        return None

    def about(self) -> str:
        return "a mock that only repeats what is said"

    async def health(self) -> str | None:
        return None

    def starting(self) -> tuple[str, ...]:
        return ()

    def start(self, mailbox: Mailbox) -> None:
        return

    def warm(self) -> None:
        return

    def remembers(self, platform: str) -> bool:
        return False

    async def prefix(self, standing: Standing) -> None:
        return None

    async def run(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        said = [message for message in turn.progress if message.role == "user"]
        files = [item.name for message in said for item in message.attachments]
        words = [message.text for message in said if message.text]
        text = "\n\n".join([*words, *(f"(file: {name})" for name in files)])
        answer = f"[mock] {text}" if text else "[mock]"
        size = max(1, -(-len(answer) // _PIECES))
        for start in range(0, len(answer), size):
            await turn.check()
            yield TextDelta(answer[start : start + size])
        yield Final(answer)

    async def close(self) -> None:
        return
