"""A request about a part of a conversation that fits the model's window."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from parley.agent.providers.base import ModelRequest
from parley.agent.taint import sources_named
from parley.memory.asking import (
    Prompt,
    Task,
    known_facts,
    request_of,
    shortened,
    task_text,
    tokens_of,
)
from parley.memory.cutting import Budget, Estimate, chunks
from parley.protocol import ChatMessage, ToolSpec
from parley.storage.memory import Fact, Line

__all__ = ["Asked", "Fitting", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """Lines to make something of; facts may be taken from the entries `said`.

    With `keep_from` they are folded, up to that entry. `before` is what stands before them in the
    conversation's prompt. `asks`: whether the model is asked at all.
    """

    lines: Sequence[Line]
    said: frozenset[int] = frozenset()
    keep_from: int | None = None
    before: Sequence[Line] = ()
    asks: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that fits, and how much of the part it is about."""

    request: ModelRequest
    task: Task
    lines: Sequence[Line]
    tokens: int


class Fitting:
    """`build` makes the conversation's prompt with these messages for its history.

    `summary` stands before them, and `outside` names what outside text went into it.
    """

    def __init__(
        self,
        prompt: Prompt,
        tools: Sequence[ToolSpec],
        *,
        build: Callable[[Sequence[ChatMessage]], Awaitable[Prompt]],
        summary: str,
        outside: str = "",
        budget: Budget,
        estimate: Estimate,
    ) -> None:
        self._tools = tools
        self._build = build
        self._summary = summary
        self._outside = outside
        self._words = min(400, max(60, budget.tokens // 20))
        self._estimate = estimate
        self._reply = budget.reply
        self._known = 0
        self._wrong = ""
        self.fixed_tokens = tokens_of(request_of(prompt, tools, ""), estimate)
        """Of a prompt without any history."""

    async def asked(
        self, part: Part, facts: Sequence[Fact], window: int, *, wrong: str = ""
    ) -> Asked | None:
        """About the largest beginning of the part that can be; None: not even a turn can.

        With all that stands before it, when that fits: then a provider has it in its cache. Where
        room is short, the model is told of fewer facts that are known. `wrong`: why its last
        answer could not be used.
        """
        self._wrong = wrong
        limit = window - Budget.of(window).reply
        for characters in (min(6_000, limit // 2), limit // 8, 0):
            self._known = characters
            found = await self._largest(part, facts, limit)
            if found is not None or not facts:
                return found
        return None

    async def _largest(self, part: Part, facts: Sequence[Fact], limit: int) -> Asked | None:
        whole = await self._about(part, part.lines, facts, before=part.before)
        if whole.tokens <= limit:
            return whole
        room = limit - self.fixed_tokens - self._estimate(len(task_text(Task(fold=True))))
        while True:
            lines = chunks(part.lines, room, self._estimate)[0]
            asked = await self._about(part, lines, facts)
            if asked.tokens <= limit:
                return asked
            if len(chunks(lines, 0, self._estimate)) == 1:
                return await self._shortened(part, lines, facts, limit)
            room = min(room * 3 // 4, room - 1)

    async def _shortened(
        self, part: Part, lines: Sequence[Line], facts: Sequence[Fact], limit: int
    ) -> Asked | None:
        """One turn that is too long by itself."""
        bare = await self._about(part, lines, facts, messages=())
        messages = [line.message for line in lines]
        less = shortened(messages, limit - bare.tokens, self._estimate)
        if less is None:
            return None
        asked = await self._about(part, lines, facts, messages=less)
        return asked if asked.tokens <= limit else None

    async def _about(
        self,
        part: Part,
        lines: Sequence[Line],
        facts: Sequence[Fact],
        *,
        before: Sequence[Line] = (),
        messages: Sequence[ChatMessage] | None = None,
    ) -> Asked:
        if messages is None:
            messages = [line.message for line in (*before, *lines)]
        prompt = await self._build(messages)
        said = tuple(line for line in lines if line.id in part.said)
        task = Task(
            said=said,
            known=known_facts(facts, said, most_characters=self._known) if said else (),
            fold=part.keep_from is not None,
            summary=_missing(self._summary, prompt),
            words=self._words,
            outside=sources_named(messages, before=self._outside, others=[prompt.outside]),
        )
        request = request_of(prompt, self._tools, task_text(task, wrong=self._wrong))
        # A provider's own limit for answers may be as large as the window.
        request = replace(request, max_output_tokens=self._reply)
        return Asked(request, task, lines, tokens_of(request, self._estimate))


def _missing(summary: str, prompt: Prompt) -> str:
    """The summary so far, unless the prompt has it."""
    if summary in prompt.system or any(summary in each.text for each in prompt.messages):
        return ""
    return summary
