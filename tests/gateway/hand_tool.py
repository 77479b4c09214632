"""A tool whose end the test decides."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, ConfigDict

from parley.agent.tools import Tool, ToolContext

__all__ = ["HandTool"]


class _Word(BaseModel):
    model_config = ConfigDict(extra="forbid")

    word: str = ""


class HandTool:
    """Waits until `let_go`; notes what began, what ended and what was cancelled."""

    def __init__(
        self,
        name: str = "hand",
        *,
        safe_to_repeat: bool = False,
        parallel: bool = False,
        timeout_seconds: float = 60.0,
        fails_with: Exception | None = None,
    ) -> None:
        self.tool = Tool(
            name,
            "Does what a hand does.",
            _Word,
            self._run,
            safe_to_repeat=safe_to_repeat,
            parallel=parallel,
            timeout_seconds=timeout_seconds,
        )
        self.log: list[tuple[str, str]] = []
        self._fails_with = fails_with
        self._open = asyncio.Event()

    def let_go(self) -> None:
        self._open.set()

    def words(self, what: str) -> list[str]:
        return [word for happened, word in self.log if happened == what]

    @property
    def began(self) -> list[str]:
        return self.words("began")

    @property
    def cancelled(self) -> list[str]:
        return self.words("cancelled")

    async def _run(self, arguments: _Word, context: ToolContext) -> str:
        self.log.append(("began", arguments.word))
        try:
            await self._open.wait()
        except asyncio.CancelledError:
            self.log.append(("cancelled", arguments.word))
            raise
        if self._fails_with is not None:
            raise self._fails_with
        self.log.append(("ended", arguments.word))
        return f"{self.tool.name} did {arguments.word}"
