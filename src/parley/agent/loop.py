"""The built-in agent's loop: model, tools, model, … until there is an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from parley.agent.budget import BudgetRefusal
from parley.agent.calls import Calls
from parley.agent.fitting import Fitting
from parley.agent.prompt import mend
from parley.agent.providers.attachments import has_files
from parley.agent.providers.base import (
    ModelEvent,
    ModelReply,
    ModelRequest,
    ProviderError,
)
from parley.agent.providers.calls import apart, new_call_id
from parley.agent.task import AgentTask, Limits, specs_for
from parley.agent.tokens import estimate_tokens
from parley.protocol import (
    CallDelta,
    ChatMessage,
    Failed,
    Final,
    ParleyError,
    ReasoningDelta,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    TurnEvent,
)

__all__ = ["AgentTask", "Limits", "run_agent"]

_WRAP_UP = (
    "You have used all the steps of this turn. Answer now with what you know; use no more tools."
)
_LONGEST_REPLY = 1_000_000  # characters: more is a model that runs away
_PROGRAM_WAITS = 10.0
"""A program is told at once when to ask again, rather than kept waiting."""
_CUT = "\n\n(The answer was cut at the model's length limit; say “go on” for the rest.)"


class OverBudget(ParleyError):
    """There is no money or there are no tokens left for this call."""

    def __init__(self, refusal: BudgetRefusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


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
    except OverBudget as error:
        yield error.refusal.failed()
    except ProviderError as error:
        yield Failed(
            str(error),
            cause=f"provider: {error.kind} {error.status or ''}",
            kind=error.kind,
            retry_after=error.retry_after,
            public=error.public,
            detail=error.detail,
        )


class _Loop:
    def __init__(self, task: AgentTask, deadline: float) -> None:
        self._task = task
        self._progress = list(task.progress)
        self._fitting = Fitting(task, self._progress)
        self._used = 0
        self._asked_tokens = 0
        self._reply: ModelReply | None = None
        self._thoughts: list[str] = []  # of each step, for a program
        self._told_ids: list[str] = []  # of the program's calls that it was told of
        self._is_last = False
        self._theirs = frozenset(tool.name for tool in task.theirs)
        tools = {name: tool for name, tool in task.tools.items() if name not in self._theirs}
        self._specs = specs_for(task.provider, task.tools, task.request)
        self._calls = Calls(task, tools, self._progress, deadline)

    async def run(self) -> AsyncGenerator[TurnEvent, None]:
        if self._theirs and not self._task.provider.offers_tools:
            model = self._task.provider.model
            sentence = f"The model {model} cannot use tools: ask without `tools`."
            yield Failed(sentence, cause="tools for a model without", kind="unsupported")
            return
        if self._answers_nothing():
            sentence = "There is nothing to answer: this tool result belongs to no call made here."
            cause = "a result without its call"
            yield Failed(sentence, cause=cause, kind="refused", public=sentence)
            return
        async with aclosing(self._calls.answer(resumed=self._task.resumed)) as events:
            async for event in events:
                yield event
        taken = sum(message.role == "assistant" for message in self._progress)
        for step in range(taken, self._task.limits.steps + 1):
            self._progress.extend(await self._task.steer())
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
            async with aclosing(self._calls.answer(resumed=False)) as events:
                async for event in events:
                    yield event
        sentence = "I could not finish in the steps I have (setting agent.max_steps)."
        yield Failed(sentence, cause="steps", kind="limit")

    async def _hand_back(self, reply: ModelReply) -> AsyncGenerator[TurnEvent, None]:
        """Run our own calls of this reply, and end with those the program runs itself."""
        theirs = tuple(call for call in reply.tool_calls if call.name in self._theirs)
        ours = tuple(call for call in reply.tool_calls if call.name not in self._theirs)
        if not ours:
            yield Final(reply.text.strip(), reply.usage, calls=theirs, reasoning=self._reasoning)
            return
        yield self._journal(replace(reply, text="", tool_calls=ours))
        async with aclosing(self._calls.answer(resumed=False)) as events:
            async for event in events:
                yield event
        yield Final(reply.text.strip(), calls=theirs, reasoning=self._reasoning)

    def _answers_nothing(self) -> bool:
        """Whether a program gave results only, and none of a call that was made."""
        results = {message.tool_call_id for message in self._progress if message.role == "tool"}
        if len(self._progress) == 0 or any(each.role != "tool" for each in self._progress):
            return False
        said = (e.message for e in reversed(self._task.history) if e.message.role == "assistant")
        last = next(said, ChatMessage("assistant"))
        return results.isdisjoint(call.id for call in last.tool_calls)

    # ── the model ──

    async def _ask(self, *, last: bool) -> AsyncGenerator[TurnEvent, None]:
        """One model reply; when the window is too small after all, once more with less."""
        self._reply = None
        self._is_last = last
        window = self._task.provider.context_window
        sent: ModelRequest | None = None
        refused: ProviderError | None = None
        for attempt in range(3):
            trimmed = self._fitting.fit(window >> attempt)
            if trimmed is not None:
                yield trimmed
            if attempt == 0 and (sentence := self._fitting.refusal()) is not None:
                raise ProviderError(sentence, kind="too_long")
            request = self._request(last=last)
            if refused is not None and request == sent:
                raise refused  # there is nothing left to leave out
            await self._pay_for(request)
            streamed = False
            try:
                stream = self._task.provider.stream(request)
                async with aclosing(self._follow(stream)) as events:
                    async for event in events:
                        streamed = True
                        yield event
            except ProviderError as error:
                if error.kind != "too_long" or attempt == 2:
                    raise
                sent, refused = request, error
                if streamed:
                    yield TextReset()
            else:
                self._learn_from(request)
                return

    async def _pay_for(self, request: ModelRequest) -> None:
        """Hold what the call may cost; over budget there is no call."""
        purse, provider = self._task.purse, self._task.provider
        if purse is None:
            return
        refusal = await purse.reserve(
            provider.label,
            provider.model,
            prompt_tokens=self._asked_tokens,
            max_output_tokens=request.max_output_tokens or self._task.longest_answer,
            now=time.time(),
        )
        if refusal is not None:
            raise OverBudget(refusal)

    def _learn_from(self, request: ModelRequest) -> None:
        """How far the estimate was off. A picture's tokens say nothing about those of words."""
        known, reply, provider = self._task.calibration, self._reply, self._task.provider
        if known is None or reply is None or has_files(request.messages):
            return
        usage = reply.usage
        if (usage.provider, usage.model) == (provider.label, provider.model):
            known.observe(
                provider.label,
                provider.model,
                estimated=self._asked_tokens,
                told=usage.input_tokens,
            )

    async def _follow(self, stream: AsyncIterator[ModelEvent]) -> AsyncGenerator[TurnEvent, None]:
        """Pass on the stream, each wait bounded by the turn's deadline."""
        size, thoughts = 0, list[str]()
        places: dict[int, int] = {}  # of a call in the reply: which of the program's it is
        try:
            while True:
                async with asyncio.timeout_at(self._calls.deadline):
                    event = await anext(stream, None)
                if event is None:
                    return
                if isinstance(event, ModelReply):
                    calls = apart(self._as_told(event.tool_calls))
                    event = self._counted(replace(event, tool_calls=calls))
                    self._reply = event
                    self._used += event.usage.input_tokens + event.usage.output_tokens
                    if thoughts:
                        self._thoughts.append("".join(thoughts))
                else:
                    size += _size(event)
                    if size > _LONGEST_REPLY:
                        raise ProviderError(
                            f"I stopped the model: its answer went on for more than "
                            f"{_LONGEST_REPLY:,} characters; ask for less at a time.",
                            kind="refused",
                        )
                    told = self._passed_on(event, thoughts, places)
                    if told is not None:
                        yield told
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    def _passed_on(
        self,
        event: TextDelta | ReasoningDelta | CallDelta | TextReset,
        thoughts: list[str],
        places: dict[int, int],
    ) -> TurnEvent | None:
        """What of it whoever asked is told: thoughts and calls are for programs."""
        match event:
            case ReasoningDelta(text=text):
                if self._task.request is None:
                    return None
                thoughts.append(text)
            case CallDelta(index=index, id=id, name=name):
                if name not in self._theirs or self._is_last:
                    return None
                place = places.setdefault(index, len(places))
                return replace(event, index=place, id=self._told_id(place, id))
            case TextReset():
                thoughts.clear()
                places.clear()
            case _:
                pass
        return event

    def _told_id(self, place: int, id: str) -> str:
        """The id of a call as the program knows it: it stays when the model begins again."""
        if place == len(self._told_ids):
            self._told_ids.append(new_call_id() if id in self._told_ids else id)
        return self._told_ids[place]

    def _as_told(self, calls: tuple[ToolCall, ...]) -> list[ToolCall]:
        """The calls of a reply, those of the program under the ids that it was told."""
        told, made = iter(self._told_ids), list[ToolCall]()
        for call in calls:
            if call.name in self._theirs:
                made.append(replace(call, id=next(told, call.id)))
            else:
                taken = call.id in self._told_ids
                made.append(replace(call, id=new_call_id()) if taken else call)
        return made

    @property
    def _reasoning(self) -> str:
        return "\n\n".join(self._thoughts)

    def _counted(self, reply: ModelReply) -> ModelReply:
        """Where something is limited, a server that tells no numbers is counted by estimate."""
        told = reply.usage.input_tokens + reply.usage.output_tokens
        if told or self._task.purse is None:
            return reply
        said = estimate_tokens(ChatMessage("assistant", reply.text, reply.tool_calls).size)
        usage = replace(reply.usage, input_tokens=self._asked_tokens, output_tokens=said)
        return replace(reply, usage=usage)

    def _request(self, *, last: bool) -> ModelRequest:
        task = self._task
        messages = self._fitting.messages
        if last:
            messages.append(ChatMessage("user", _WRAP_UP))
        wishes = task.wishes
        must_call = task.request is not None and task.request.must_call
        if not must_call and any(message.role == "assistant" for message in self._progress):
            # A tool of ours was called, as asked: from here on the model is free to answer.
            wishes = replace(wishes, tool_choice=None, tool=None)
        request = ModelRequest(
            system=task.system,
            messages=mend(messages),
            tools=() if last else self._specs,
            wishes=wishes,
        )
        if task.request is not None:
            request = replace(request, longest_wait=_PROGRAM_WAITS, for_program=True)
        self._asked_tokens = self._fitting.tokens_of(request)
        return replace(request, max_output_tokens=self._fitting.longest_reply(self._asked_tokens))

    def _journal(self, reply: ModelReply) -> StepTaken:
        said = ChatMessage("assistant", reply.text, tool_calls=reply.tool_calls)
        self._progress.append(said)
        return StepTaken((said,), reply.usage)

    def _final(self, reply: ModelReply) -> Final | Failed:
        text = reply.text.strip()
        if not text and reply.filtered:
            return self._withheld(reply)
        if not text:
            how = "`/retry` asks it again" if self._task.request is None else "ask again"
            sentence = f"The model gave an empty answer; {how}."
            return Failed(
                sentence, cause="empty", usage=reply.usage, kind="broken", public=sentence
            )
        is_cut = not reply.complete and not reply.filtered and self._task.request is None
        cut = _CUT if is_cut else ""
        files = tuple(
            file
            for message in self._progress
            if message.role == "tool"
            for file in message.attachments
        )
        return Final(
            text + cut,
            reply.usage,
            complete=reply.complete,
            attachments=files,
            filtered=reply.filtered,
            reasoning=self._reasoning,
        )

    def _withheld(self, reply: ModelReply) -> Final | Failed:
        """A program reads of a content filter in the answer, a person in a sentence."""
        if self._task.request is not None:
            return Final("", reply.usage, complete=False, filtered=True, reasoning=self._reasoning)
        who = self._task.provider.label
        sentence = f"The content filter of {who} withheld the reply: put it another way."
        return Failed(sentence, cause="filtered", usage=reply.usage, kind="refused")


def _size(event: TextDelta | ReasoningDelta | CallDelta | TextReset) -> int:
    match event:
        case TextReset():
            return 0
        case CallDelta(arguments=arguments):
            return len(arguments)
        case _:
            return len(event.text)
