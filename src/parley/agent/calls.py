"""The model's tool calls: read once, allowed where they need it, run, and answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from parley.agent.hands import Asked, Asking
from parley.agent.prompt import UNKNOWN_OUTCOME, unanswered_calls
from parley.agent.task import AgentTask
from parley.agent.tools.base import Prepared, Tool, ToolResult
from parley.protocol import ChatMessage, StepTaken, ToolCall, ToolFinished, ToolStarted, TurnEvent

__all__ = ["Calls"]


@dataclass(frozen=True, slots=True)
class _Made:
    """A call of the model, read: ready to be run, or `refused` with a result that says why."""

    call: ToolCall
    name: str
    tool: Tool[Any] | None
    prepared: Prepared | None = None
    refused: ToolResult | None = None

    @property
    def is_parallel(self) -> bool:
        if self.tool is None or self.prepared is None or self.prepared.wanted is not None:
            return False
        return self.tool.parallel


class Calls:
    """The calls of one turn. `progress` is the turn so far, shared with the loop."""

    def __init__(
        self,
        task: AgentTask,
        tools: Mapping[str, Tool[Any]],
        progress: list[ChatMessage],
        deadline: float,
    ) -> None:
        self.deadline = deadline
        self._task = task
        self._tools = tools
        self._progress = progress

    async def answer(self, *, resumed: bool) -> AsyncGenerator[TurnEvent, None]:
        """Answer the newest reply's calls; each result is a step of its own."""
        if resumed:
            for call in unanswered_calls(self._progress):
                if await self._never_began(call):
                    break  # nor did any call behind it
                tool = self._tools.get(call.name)
                if tool is None or not tool.safe_to_repeat:
                    unknown = ToolResult(UNKNOWN_OUTCOME, ok=False)
                    yield self._result(call, unknown, "unknown-outcome")
        for batch in self._batches(unanswered_calls(self._progress)):
            first = batch[0]
            if first.refused is not None:
                yield ToolStarted(first.call)
                yield ToolFinished(first.call, ok=False)
                yield self._result(first.call, first.refused)
                continue
            asked = await self._ask_for(first)
            if asked is not None and asked.event is not None:
                yield asked.event
            refusal = await self._refusal(first, asked)
            if refusal:
                yield self._result(first.call, ToolResult(refusal, ok=False))
                continue
            async with aclosing(self._run_calls(batch)) as events:
                async for event in events:
                    yield event

    async def _ask_for(self, made: _Made) -> Asked | None:
        wanted = made.prepared.wanted if made.prepared is not None else None
        if wanted is None or self._task.ask is None:
            return None
        return await self._task.ask(
            Asking(made.call, made.name, wanted.what, wanted.trigger, wanted.owner)
        )

    async def _refusal(self, made: _Made, asked: Asked | None) -> str:
        """Why the call may not be made; empty when it may."""
        if made.prepared is None or made.prepared.wanted is None:
            return ""
        if asked is None:
            return "This needs a person's approval, and nobody can be asked here."
        loop = asyncio.get_running_loop()
        began = loop.time()
        refusal = await asked.decided()
        self.deadline += loop.time() - began  # a person's time is not the turn's
        return refusal

    async def _never_began(self, call: ToolCall) -> bool:
        """Whether a person was asked about it, and that is as far as it came."""
        return self._task.ask is not None and await self._task.ask.is_open(self._name(call))

    def _name(self, call: ToolCall) -> str:
        """Of this one call for ever: some servers begin to count anew with each reply."""
        replies = sum(message.role == "assistant" for message in self._progress)
        return f"{self._task.turn}.{replies}.{call.id}"

    def _made(self, call: ToolCall) -> _Made:
        """The call with its arguments read, once, or with what is wrong about it."""
        tool = self._tools.get(call.name)
        if tool is None:
            theirs = (tool.name for tool in self._task.theirs)
            known = ", ".join((*self._tools, *theirs)) or "none"
            unknown = f"There is no tool {call.name}; there are: {known}."
            return _Made(call, "", None, refused=ToolResult(unknown, ok=False))
        name = self._name(call)
        prepared = tool.prepare(call, replace(self._task.context, call=name))
        if isinstance(prepared, ToolResult):
            return _Made(call, name, tool, refused=prepared)
        return _Made(call, name, tool, prepared)

    def _batches(self, calls: Sequence[ToolCall]) -> list[list[_Made]]:
        """Calls that may run side by side together, every other one alone; in their order."""
        batches: list[list[_Made]] = []
        joins = False
        for call in calls:
            made = self._made(call)
            if made.is_parallel and joins:
                batches[-1].append(made)
            else:
                batches.append([made])
            joins = made.is_parallel
        return batches

    async def _run_calls(self, calls: Sequence[_Made]) -> AsyncGenerator[TurnEvent, None]:
        await self._task.check()
        loop = asyncio.get_running_loop()
        began = loop.time()
        waits = any(made.tool is not None and made.tool.waits_for_people for made in calls)
        tasks: dict[asyncio.Task[ToolResult], ToolCall] = {}
        try:
            for made in calls:
                tasks[asyncio.create_task(self._run_call(made))] = made.call
                yield ToolStarted(made.call)
            while tasks:
                left = None if waits else max(0.0, self.deadline - loop.time())
                done, _ = await asyncio.wait(
                    tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    raise TimeoutError
                for task in done:
                    call, result = tasks.pop(task), task.result()
                    yield ToolFinished(call, ok=result.ok)
                    yield self._result(call, result)
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        if waits:
            self.deadline += loop.time() - began

    async def _run_call(self, made: _Made) -> ToolResult:
        if made.tool is None or made.prepared is None:
            raise TypeError(f"{made.call.name} was not prepared")
        context = replace(self._task.context, call=made.name)
        return await made.tool.run_prepared(made.prepared, context)

    def _result(self, call: ToolCall, result: ToolResult, note: str | None = None) -> StepTaken:
        said = ChatMessage(
            "tool",
            result.text,
            tool_call_id=call.id,
            tool_name=call.name,
            attachments=result.attachments,
            note=note,
        )
        self._progress.append(said)
        return StepTaken((said,))
