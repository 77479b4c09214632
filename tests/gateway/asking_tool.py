"""A tool that may not be used without a person's word."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import BaseModel, ConfigDict

from parley.agent.tools import Tool, ToolContext, ToolResult, Wanted

__all__ = ["AskingTool"]


class _Deed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    word: str = ""
    times: int = 1


class AskingTool:
    """Notes each time it is run, and with what. `wanted`: the word it needs, or when.

    Its results are words of ours: they taint nothing.
    """

    def __init__(
        self,
        name: str = "deed",
        *,
        safe_to_repeat: bool = False,
        wanted: Wanted | Callable[[Mapping[str, object]], Wanted | None] | None = None,
    ) -> None:
        self._wanted = wanted
        self.tool = Tool(
            name,
            "Does what cannot be undone.",
            _Deed,
            self._run,
            safe_to_repeat=safe_to_repeat,
            needs_approval=True if wanted is None else self._wants,
        )
        self.done: list[dict[str, object]] = []

    def _wants(self, arguments: _Deed, context: ToolContext) -> Wanted | None:
        return self._wanted(arguments.model_dump()) if callable(self._wanted) else self._wanted

    async def _run(self, arguments: _Deed, context: ToolContext) -> ToolResult:
        self.done.append(arguments.model_dump())
        return ToolResult(f"did {arguments.word}", outside="")
