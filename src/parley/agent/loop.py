"""The built-in agent's loop: model, tools, model, … until there is an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from parley.agent.prompt import UNKNOWN_OUTCOME, estimate_tokens, first_kept, mend, unanswered_calls
from parley.agent.providers.base import (
    ModelEvent,
    ModelReply,
    ModelRequest,
    Provider,
    ProviderError,
)
from parley.agent.tools import Tool, ToolContext, ToolResult
from parley.protocol import (
    ApprovalAsked,
    ChatMessage,
    Failed,
    Final,
    HistoryEntry,
    HistoryTrimmed,
    Request,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolSpec,
    ToolStarted,
    TurnEvent,
    Wishes,
)

__all__ = ["AgentTask", "Asked", "Limits", "run_agent"]

_WRAP_UP = (
    "You have used all the steps of this turn. Answer now with what you know; use no more tools."
)
_NO_WISHES = Wishes()
_LONGEST_REPLY = 1_000_000  # characters: more is a model that runs away
_CUT = "\n\n(The answer was cut at the model's length limit; say “go on” for the rest.)"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one turn may use."""

    steps: int
    seconds: float
    tokens: int


class Asked(Protocol):
    """A call that waits for a person's word."""

    @property
    def event(self) -> ApprovalAsked: ...

    async def decided(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One turn, as the loop sees it. `ask` puts a call to a person; None: nobody can be asked."""

    system: str
    history: tuple[HistoryEntry, ...]
    progress: tuple[ChatMessage, ...]
    resumed: bool
    provider: Provider
    tools: Mapping[str, Tool[Any]]
    context: ToolContext
    limits: Limits
    steer: Callable[[], Awaitable[tuple[ChatMessage, ...]]]
    check: Callable[[], Awaitable[None]]
    request: Request | None = None
    ask: Callable[[ToolCall, str], Asked] | None = None

    @property
    def wishes(self) -> Wishes:
        return self.request.wishes if self.request is not None else _NO_WISHES

    @property
    def theirs(self) -> tuple[ToolSpec, ...]:
        """The tools that the program which asked runs itself."""
        return self.request.tools if self.request is not None else ()


async def run_agent(task: AgentTask) -> AsyncGenerator[TurnEvent, None]:
    """Yield what happens; end with `Final` or `Failed`."""
    deadline = asyncio.get_running_loop().time() + task.limits.seconds
    try:
        async with aclosing(_Loop(task, deadline).run()) as events:
            async for event in events:
                yield event
    except TimeoutError:
        yield Failed(
            f"I stopped after {task.limits.seconds:.0f} seconds, the longest a turn may take "
            "(setting agent.turn_seconds).",
            cause="turn time limit",
            kind="limit",
        )
    except ProviderError as error:
        yield Failed(
            str(error),
            cause=f"provider: {error.kind} {error.status or ''}",
            kind=error.kind,
            retry_after=error.retry_after,
        )


class _Loop:
    def __init__(self, task: AgentTask, deadline: float) -> None:
        self._task = task
        self._deadline = deadline
        self._progress = list(task.progress)
        self._history: Sequence[HistoryEntry] = task.history
        self._used = 0
        self._reply: ModelReply | None = None
        self._theirs = frozenset(tool.name for tool in task.theirs)
        self._tools = {name: tool for name, tool in task.tools.items() if name not in self._theirs}

    async def run(self) -> AsyncGenerator[TurnEvent, None]:
        if self._theirs and not self._task.provider.offers_tools:
            model = self._task.provider.model
            sentence = f"The model {model} cannot use tools: ask without `tools`."
            yield Failed(sentence, cause="tools for a model without", kind="unsupported")
            return
        if self._answers_nothing():
            sentence = "There is nothing to answer: this tool result belongs to no call made here."
            yield Failed(sentence, cause="a result without its call", kind="refused")
            return
        async with aclosing(self._use_tools(resumed=self._task.resumed)) as events:
            async for event in events:
                yield event
        taken = sum(message.role == "assistant" for message in self._progress)
        for step in range(taken, self._task.limits.steps + 1):
            self._progress += await self._task.steer()
            last = step == self._task.limits.steps
            async with aclosing(self._ask(last=last)) as events:
                async for event in events:
                    yield event
            reply = self._reply
            if reply is None:
                raise ProviderError("The model ended without an answer.", kind="broken")
            if not reply.tool_calls or (last and reply.text.strip()):
                yield self._final(reply)
                return
            if any(call.name in self._theirs for call in reply.tool_calls):
                async with aclosing(self._hand_back(reply)) as events:
                    async for event in events:
                        yield event
                return
            if last:  # it was offered no tool, and calls one all the same
                break
            yield self._journal(reply)
            if self._used > self._task.limits.tokens:
                yield Failed(
                    f"I stopped: this turn used {self._used:,} tokens, more than it may "
                    "(setting agent.turn_tokens).",
                    cause="turn token limit",
                    kind="limit",
                )
                return
            async with aclosing(self._use_tools(resumed=False)) as events:
                async for event in events:
                    yield event
        sentence = "I could not finish in the steps I have (setting agent.max_steps)."
        yield Failed(sentence, cause="steps", kind="limit")

    async def _hand_back(self, reply: ModelReply) -> AsyncGenerator[TurnEvent, None]:
        """Run our own calls of this reply, and end with those the program runs itself."""
        theirs = tuple(call for call in reply.tool_calls if call.name in self._theirs)
        ours = tuple(call for call in reply.tool_calls if call.name not in self._theirs)
        if not ours:
            yield Final(reply.text.strip(), reply.usage, calls=theirs)
            return
        yield self._journal(replace(reply, text="", tool_calls=ours))
        async with aclosing(self._use_tools(resumed=False)) as events:
            async for event in events:
                yield event
        yield Final(reply.text.strip(), calls=theirs)

    def _answers_nothing(self) -> bool:
        """Whether a program gave results only, and none of a call that was made."""
        results = {message.tool_call_id for message in self._progress if message.role == "tool"}
        if len(self._progress) == 0 or any(each.role != "tool" for each in self._progress):
            return False
        said = (e.message for e in reversed(self._history) if e.message.role == "assistant")
        last = next(said, ChatMessage("assistant"))
        return results.isdisjoint(call.id for call in last.tool_calls)

    # ── the model ──

    async def _ask(self, *, last: bool) -> AsyncGenerator[TurnEvent, None]:
        """One model reply; when the window is too small after all, once more with less."""
        self._reply = None
        window = self._task.provider.context_window
        for attempt in range(3):
            async for event in self._trim(window >> attempt):
                yield event
            streamed = False
            try:
                stream = self._task.provider.stream(self._request(last=last))
                async with aclosing(self._follow(stream)) as events:
                    async for event in events:
                        streamed = True
                        yield event
            except ProviderError as error:
                if error.kind != "too_long" or attempt == 2:
                    raise
                if streamed:
                    yield TextReset()
            else:
                return

    async def _follow(self, stream: AsyncIterator[ModelEvent]) -> AsyncGenerator[TurnEvent, None]:
        """Pass on the stream, each wait bounded by the turn's deadline."""
        size = 0
        try:
            while True:
                async with asyncio.timeout_at(self._deadline):
                    event = await anext(stream, None)
                if event is None:
                    return
                if isinstance(event, ModelReply):
                    self._reply = event
                    self._used += event.usage.input_tokens + event.usage.output_tokens
                else:
                    size += len(event.text) if isinstance(event, TextDelta) else 0
                    if size > _LONGEST_REPLY:
                        raise ProviderError(
                            f"I stopped the model: its answer went on for more than "
                            f"{_LONGEST_REPLY:,} characters; ask for less at a time.",
                            kind="refused",
                        )
                    yield event
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def _trim(self, window: int) -> AsyncGenerator[TurnEvent, None]:
        """Drop the oldest history that does not fit beside this turn and its answer."""
        task = self._task
        answer = min(task.wishes.max_output_tokens or window // 4, window // 2)
        fixed = estimate_tokens(len(task.system.encode()))
        fixed += sum(estimate_tokens(message.size) for message in self._progress)
        fixed += sum(tool.size // 3 for tool in self._offered())
        fixed += sum(len(str(tool.parameters)) // 3 + 16 for tool in task.theirs)
        index = first_kept(self._history, budget=max(0, window - answer - fixed))
        if index:
            self._history = self._history[index:]
            if self._history:
                yield HistoryTrimmed(self._history[0].id)

    def _request(self, *, last: bool) -> ModelRequest:
        task = self._task
        messages = [entry.message for entry in self._history] + self._progress
        if last:
            messages.append(ChatMessage("user", _WRAP_UP))
        wishes = task.wishes
        tools: tuple[ToolSpec, ...] = ()
        if not last and wishes.tool_choice != "none":
            tools = (*(tool.spec for tool in self._offered()), *task.theirs)
        if any(message.role == "assistant" for message in self._progress):
            # What must be called was called: from here on the model is free to answer.
            wishes = replace(wishes, tool_choice=None, tool=None)
        return ModelRequest(
            system=task.system,
            messages=mend(messages),
            tools=tools,
            max_output_tokens=wishes.max_output_tokens,
            wishes=wishes,
        )

    def _offered(self) -> Sequence[Tool[Any]]:
        return tuple(self._tools.values()) if self._task.provider.offers_tools else ()

    def _journal(self, reply: ModelReply) -> StepTaken:
        said = ChatMessage("assistant", reply.text, tool_calls=reply.tool_calls)
        self._progress.append(said)
        return StepTaken((said,), reply.usage)

    def _final(self, reply: ModelReply) -> Final | Failed:
        text = reply.text.strip()
        if not text:
            how = "`/retry` asks it again" if self._task.request is None else "ask again"
            sentence = f"The model gave an empty answer; {how}."
            return Failed(sentence, cause="empty", usage=reply.usage, kind="broken")
        cut = "" if reply.complete or self._task.request is not None else _CUT
        return Final(text + cut, reply.usage, complete=reply.complete)

    # ── tools ──

    async def _use_tools(self, *, resumed: bool) -> AsyncGenerator[TurnEvent, None]:
        """Answer the newest reply's calls; each result is a step of its own."""
        if resumed:
            for call in unanswered_calls(self._progress):
                if not self._may_repeat(call):
                    unknown = ToolResult(UNKNOWN_OUTCOME, ok=False)
                    yield self._result(call, unknown, "unknown-outcome")
        for batch in self._batches(unanswered_calls(self._progress)):
            tool = self._tools.get(batch[0].name)
            if tool is not None and tool.needs_approval:
                asked = self._ask_for(batch[0])
                if asked is not None:
                    yield asked.event
                refusal = await self._refusal(asked)
                if refusal:
                    yield self._result(batch[0], ToolResult(refusal, ok=False))
                    continue
            async with aclosing(self._run_calls(batch)) as events:
                async for event in events:
                    yield event

    def _ask_for(self, call: ToolCall) -> Asked | None:
        if self._task.ask is None:
            return None
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False, default=str)
        return self._task.ask(call, f"May I use `{call.name}` with {arguments}?")

    async def _refusal(self, asked: Asked | None) -> str:
        """Why the call may not be made; empty when it may."""
        if asked is None:
            return "This needs a person's approval, and nobody can be asked here."
        async with asyncio.timeout_at(self._deadline):
            allowed = await asked.decided()
        return "" if allowed else "The person did not allow this."

    def _may_repeat(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is not None and tool.safe_to_repeat

    def _batches(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """Calls that may run side by side together, every other one alone; in their order."""
        batches: list[list[ToolCall]] = []
        joins = False
        for call in calls:
            tool = self._tools.get(call.name)
            parallel = tool is not None and tool.parallel and not tool.needs_approval
            if parallel and joins:
                batches[-1].append(call)
            else:
                batches.append([call])
            joins = parallel
        return batches

    async def _run_calls(self, calls: Sequence[ToolCall]) -> AsyncGenerator[TurnEvent, None]:
        await self._task.check()
        tasks: dict[asyncio.Task[ToolResult], ToolCall] = {}
        try:
            for call in calls:
                tasks[asyncio.create_task(self._run_call(call))] = call
                yield ToolStarted(call)
            while tasks:
                left = self._deadline - asyncio.get_running_loop().time()
                done, _ = await asyncio.wait(
                    tasks, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED
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

    async def _run_call(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return ToolResult(f"There is no tool {call.name}; there are: {known}.", ok=False)
        return await tool.run(call, self._task.context)

    def _result(self, call: ToolCall, result: ToolResult, note: str | None = None) -> StepTaken:
        said = ChatMessage(
            "tool", result.text, tool_call_id=call.id, tool_name=call.name, note=note
        )
        self._progress.append(said)
        return StepTaken((said,))
