"""A tool that may not be used without a person's word."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from parley.agent.tools import Tool, ToolContext

__all__ = ["AskingTool"]


class _Deed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    word: str = ""
    times: int = 1


class AskingTool:
    """Notes each time it is run, and with what."""

    def __init__(self, name: str = "deed", *, safe_to_repeat: bool = False) -> None:
        self.tool = Tool(
            name,
            "Does what cannot be undone.",
            _Deed,
            self._run,
            safe_to_repeat=safe_to_repeat,
            needs_approval=True,
        )
        self.done: list[dict[str, object]] = []

    async def _run(self, arguments: _Deed, context: ToolContext) -> str:
        self.done.append(arguments.model_dump())
        return f"did {arguments.word}"
