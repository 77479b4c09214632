"""The model's tool calls: read once, allowed where they need it, run, and answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from parley.agent.hands import Asked, Asking
from parley.agent.prompt import UNKNOWN_OUTCOME, unanswered_calls
from parley.agent.question_text import MOST_SHOWN
from parley.agent.taint import Taint, described_by, find_taint
from parley.agent.task import AgentTask
from parley.agent.tools.base import Prepared, Tool, ToolResult, Wanted
from parley.protocol import (
    ChatMessage,
    HistoryEntry,
    StepTaken,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)

__all__ = ["NOBODY", "Calls"]

NOBODY = "This needs a person's approval, and nobody can be asked here."
_BLOCKED = "This is not allowed now (setting agent.taint)"
_HERE = "There is text here that nobody in this conversation wrote"
_TOO_LONG = "This is too long to be shown to the person who must allow it: make it shorter."


@dataclass(frozen=True, slots=True)
class _Made:
    """A call of the model, read: ready to be run, or `refused` with a result that says why."""

    call: ToolCall
    name: str
    tool: Tool[Any] | None
    prepared: Prepared | None = None
    refused: ToolResult | None = None


@dataclass(frozen=True, slots=True)
class _Checked:
    """A call that is about to be made: the word it needs, and what taints it."""

    made: _Made
    wanted: Wanted | None = None
    taint: Taint | None = None
    guarded: bool = False
    """Whether the taint is why a word is needed."""

    @property
    def is_parallel(self) -> bool:
        tool = self.made.tool
        return tool is not None and tool.parallel and self.wanted is None


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
            first, call = batch[0], batch[0].made.call
            if first.made.refused is not None:
                yield ToolStarted(call)
                yield ToolFinished(call, ok=False)
                yield self._result(call, first.made.refused)
                continue
            asked = await self._ask_for(first)
            if asked is not None and asked.event is not None:
                yield asked.event
            refusal = await self._refusal(first, asked)
            if refusal:
                yield self._result(call, ToolResult(refusal, ok=False, outside=""))
                continue
            async with aclosing(self._run_calls(batch)) as events:
                async for event in events:
                    yield event

    async def _ask_for(self, checked: _Checked) -> Asked | None:
        wanted, made = checked.wanted, checked.made
        if wanted is None or self._task.ask is None or self._is_blocked(checked):
            return None
        return await self._task.ask(
            Asking(
                made.call,
                made.name,
                wanted.what,
                wanted.trigger,
                wanted.owner,
                wanted.reasons,
                wanted.once,
                wanted.binding,
            )
        )

    async def _refusal(self, checked: _Checked, asked: Asked | None) -> str:
        """Why the call may not be made; empty when it may."""
        if checked.wanted is None:
            return ""
        if self._is_blocked(checked):
            return f"{_BLOCKED}: {_why(checked)}."
        if asked is None:
            return _nobody(checked)
        loop = asyncio.get_running_loop()
        began = loop.time()
        refusal = await asked.decided()
        self.deadline += loop.time() - began  # a person's time is not the turn's
        return _nobody(checked) if refusal == NOBODY else refusal

    def _is_blocked(self, checked: _Checked) -> bool:
        return checked.guarded and self._task.taint == "block"

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
            return _Made(call, "", None, refused=ToolResult(unknown, ok=False, outside=""))
        name = self._name(call)
        prepared = tool.prepare(call, replace(self._task.context, call=name))
        if isinstance(prepared, ToolResult):
            return _Made(call, name, tool, refused=prepared)
        return _Made(call, name, tool, prepared)

    def _batches(self, calls: Sequence[ToolCall]) -> Iterator[list[_Checked]]:
        """Calls that may run side by side together, every other one alone; in their order.

        Each is read when its turn has come: what a call needs a word for may depend on what the
        calls before it did.
        """
        batch: list[_Checked] = []
        for call in calls:
            checked = self._checked(self._made(call))
            if batch and not checked.is_parallel:
                yield batch
                batch, checked = [], self._checked(self._made(call))
            batch.append(checked)
            if not checked.is_parallel:
                yield batch
                batch = []
        if batch:
            yield batch

    def _checked(self, made: _Made) -> _Checked:
        """The call as it stands now: what came before it may have tainted the context."""
        tool, prepared = made.tool, made.prepared
        if tool is None or prepared is None:
            return _Checked(made)
        wanted = prepared.wanted
        taint = self._taint() if tool.guard is not None else None
        if tool.guard is None or taint is None or self._task.taint == "off":
            return _Checked(made, wanted, taint)
        what = tool.guard(prepared.arguments, self._task.context, taint)
        if what is None:
            return _Checked(made, wanted, taint)
        if len(what) > MOST_SHOWN:
            refused = ToolResult(_TOO_LONG, ok=False, outside="")
            return _Checked(replace(made, prepared=None, refused=refused))
        wanted = wanted or Wanted(what)
        # No switch of a person's settles it: the reason is another one.
        why = f"{_HERE} (from {taint.shown})."
        wanted = replace(wanted, trigger=None, reasons=(*wanted.reasons, why))
        return _Checked(made, wanted, taint, guarded=True)

    def _taint(self) -> Taint | None:
        """Of all that the model was shown so far. Only guarded calls look for it."""
        task = self._task
        described = described_by(self._tools.values())
        history = (_as_seen(entry, task.strangers) for entry in task.history)
        return find_taint((*history, *self._progress), before=task.outside, others=described)

    async def _run_calls(self, calls: Sequence[_Checked]) -> AsyncGenerator[TurnEvent, None]:
        await self._task.check()
        loop = asyncio.get_running_loop()
        began = loop.time()
        tools = (checked.made.tool for checked in calls)
        waits = any(tool is not None and tool.waits_for_people for tool in tools)
        tasks: dict[asyncio.Task[ToolResult], ToolCall] = {}
        try:
            for checked in calls:
                call = checked.made.call
                tasks[asyncio.create_task(self._run_call(checked))] = call
                yield ToolStarted(call)
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

    async def _run_call(self, checked: _Checked) -> ToolResult:
        made = checked.made
        if made.tool is None or made.prepared is None:
            raise TypeError(f"{made.call.name} was not prepared")
        outside = "" if checked.taint is None else checked.taint.named
        context = replace(self._task.context, call=made.name, outside=outside)
        return await made.tool.run_prepared(made.prepared, context)

    def _result(self, call: ToolCall, result: ToolResult, note: str | None = None) -> StepTaken:
        said = ChatMessage(
            "tool",
            result.text,
            tool_call_id=call.id,
            tool_name=call.name,
            attachments=result.attachments,
            note=note,
            outside=result.outside,
        )
        self._progress.append(said)
        return StepTaken((said,))


def _as_seen(entry: HistoryEntry, strangers: frozenset[str]) -> ChatMessage:
    """A message of the history; what one of the `strangers` said comes from outside."""
    message = entry.message
    if entry.person in strangers and message.role == "user" and not message.outside:
        return replace(message, outside=f"a message of {entry.person}")
    return message


def _why(checked: _Checked) -> str:
    source = "" if checked.taint is None else checked.taint.named
    return f"{_HERE[0].lower()}{_HERE[1:]} (from {source})"


def _nobody(checked: _Checked) -> str:
    return f"{NOBODY[:-1]}: {_why(checked)}." if checked.guarded else NOBODY
