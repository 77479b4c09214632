"""One round of tending one conversation: see what is due, ask the model, store what it made.

Nothing is stored before the end of a round, and then all of it at once: it may be broken off at
any moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeAlias

from parley.agent.foreign import one_line
from parley.agent.providers.base import ModelReply, ModelRequest, Provider, ProviderError
from parley.agent.taint import sources_named
from parley.agent.tokens import estimate_tokens
from parley.memory.answer import Answer, read_answer
from parley.memory.archiving import with_archived
from parley.memory.asking import Prompt, Task, answer_form, known_facts, said_by_people, tokens_of
from parley.memory.cutting import Budget, Estimate, chunks, fold_point, newest_from
from parley.memory.fitting import Asked, Fitting, Part
from parley.memory.lean_extraction import LeanExtraction
from parley.memory.replies import reply_of
from parley.memory.secrets import without_secrets
from parley.protocol import ChatMessage, ParleyError, ToolSpec, Usage
from parley.storage.memory import (
    Commit,
    Consolidation,
    Fact,
    Fold,
    Line,
    MemoryStore,
    Tended,
    person_place,
)

__all__ = ["Aim", "Means", "NotNow", "Wanted", "run_round", "usual_estimate"]

Wanted: TypeAlias = Literal["fold", "compact", "all"]
"""`fold`: when the prompt is over its budget. `compact`: all but the newest turns, whatever the
budget. `all`: fold when that is due, else learn."""

_TRIES: Final = 3
_LATER: Final = frozenset({"auth", "unreachable", "timeout", "rate_limited", "overloaded"})
_LEAST_WORDS: Final = 12  # characters: less is a greeting, and not worth a model call
_KEPT_TURNS: Final = 2
_AGAIN: Final = ", and so was the one before it: begin with { and end with }"
_LEAN_TOKENS: Final = 1_500  # a small model loses what stands in a long list
_LEAN_WORDS: Final = 150
_LONGEST_SAID: Final = 200


@dataclass(slots=True)
class Aim:
    """How far a conversation is to be folded: a long part takes several rounds."""

    keep_from: int = 0


class NotNow(ParleyError):
    """The model must not be asked now, such as when a budget is used up."""


def usual_estimate(provider: Provider, size: int) -> int:
    return estimate_tokens(size)


@dataclass(frozen=True, slots=True)
class Means:
    """What rounds work with. `provider`, `window` and `tools` are for prompts that bring none.

    `build` makes a conversation's prompt with these messages for its history, mended and ready to
    send; None where whoever answers remembers by itself. `priced` says what a call cost.
    """

    sessions: MemoryStore
    build: Callable[[Tended, Sequence[ChatMessage]], Awaitable[Prompt | None]]
    place_of: Callable[[Tended], str]
    provider: Provider | None = None
    window: int | None = None
    tools: Callable[[], Sequence[ToolSpec]] = tuple
    estimate: Callable[[Provider, int], int] = usual_estimate
    may_spend: Callable[[Tended, Provider, int], Awaitable[str | None]] | None = None
    priced: Callable[[Usage], Usage] | None = None
    learn: bool = True


async def run_round(
    means: Means,
    session: Tended,
    *,
    wanted: Wanted = "all",
    aim: Aim | None = None,
    told: Callable[[Prompt], None] | None = None,
) -> Commit | None:
    """Do the first thing that is due, and be its commit: then there may be more.

    None when nothing is, and then with `all` the session is out of line; or when it went on
    meanwhile, and nothing was stored. The rounds of one sitting share their `aim`. `told` hears
    who will be asked before they are.
    """
    prompt = await means.build(session, ())
    provider = None if prompt is None else prompt.provider or means.provider
    if prompt is None or provider is None:
        part = None
    else:
        if told is not None:
            told(prompt)
        a_round = _Round(means, session, prompt, provider)
        part = await a_round.due(wanted, aim or Aim())
        if part is not None:
            return await a_round.made_of(part)
    if wanted == "all":
        await means.sessions.put_off(session.id, session.seen, None)
    return None


class _Round:
    def __init__(self, means: Means, session: Tended, prompt: Prompt, provider: Provider) -> None:
        self._means = means
        self._session = session
        self._prompt = prompt
        self._provider = provider
        self._place = means.place_of(session)
        self._learns = prompt.learns and means.learn and bool(self._place)
        window = provider.context_window if prompt.provider is not None else means.window
        self._budget = Budget.of(window or provider.context_window)
        self._estimate: Estimate = partial(means.estimate, provider)
        tools = means.tools() if prompt.tools is None else prompt.tools
        self._fitting = Fitting(
            prompt,
            tuple(tools) if provider.offers_tools else (),
            build=partial(self._build, prompt),
            summary=session.summary,
            outside=session.outside,
            budget=self._budget,
            estimate=self._estimate,
        )
        self._usage: list[Usage] = []
        self._wanted: Wanted = "all"
        self._said_last = ""

    # ── what is due ──

    async def due(self, wanted: Wanted, aim: Aim) -> Part | None:
        self._wanted = wanted
        session, seen = self._session, self._session.seen
        if seen.folded < session.window_start:  # this was cut in a hurry
            upto = session.window_start - 1
            lines = await self._lines(after=seen.folded - 1, upto=upto)
            if lines:
                rest = await self._lines(after=_last(lines), upto=upto)
                return self._to_fold(lines, rest[0].id if rest else session.window_start)
        history = await self._lines(after=session.window_start - 1)
        if wanted == "compact":
            keep_from = newest_from(history, _KEPT_TURNS)
        else:
            fixed = self._fitting.fixed_tokens
            keep_from = fold_point(history, fixed, self._budget, self._estimate)
        aim.keep_from = max(aim.keep_from, keep_from or 0)
        if aim.keep_from > session.window_start:
            keep_from = aim.keep_from
            return self._to_fold([line for line in history if line.id < keep_from], keep_from)
        return await self._to_learn(history) if wanted == "all" and self._learns else None

    def _to_fold(self, lines: Sequence[Line], keep_from: int) -> Part:
        return Part(lines, self._said(lines), keep_from, asks=self._prompt.learns)

    async def _to_learn(self, history: Sequence[Line]) -> Part | None:
        start = self._session.window_start
        lines = await self._lines(after=self._session.seen.learned)
        words = sum(len(line.message.text.strip()) for line in said_by_people(lines))
        if words < _LEAST_WORDS:
            # Where nobody said anything, there is nothing to come back to.
            return Part(lines, asks=False) if lines and not words else None
        early = [line for line in lines if line.id < start]
        if early:  # these are in no prompt any more
            said = self._said(early)
            return Part(early, said, asks=bool(said))
        before = [line for line in history if line.id < lines[0].id]
        return Part(lines, self._said(lines), before=before)

    async def _lines(self, *, after: int, upto: int | None = None) -> list[Line]:
        return await self._means.sessions.lines(
            self._session.id,
            after=max(after, 0),
            upto=upto,
            most_bytes=max(4_000_000, 8 * self._budget.window),
        )

    # ── what is made of it ──

    async def made_of(self, part: Part) -> Commit | None:
        """What it cost is counted in any case."""
        commit: Commit | None = None
        try:
            commit = await self.make(part)
        finally:
            if commit is None and self._usage:
                await self._means.sessions.count_calls(self._session.id, self._usage)
        return commit

    async def make(self, part: Part) -> Commit | None:
        """Ask, at most three times, and store what came of it."""
        if not part.asks:
            return await self._put_away(part, part.lines)
        facts = await self._means.sessions.facts([self._place]) if part.said else []
        if self._prompt.lean:
            return await self._make_lean(part, facts)
        failed: ProviderError | None = None
        asked: Asked | None = None
        smaller, wrong, said = 0, "", ""
        # A schema would take the place of what a remote provider has cached: only when needed.
        is_held = self._prompt.alone
        for attempt in range(_TRIES):
            window = self._budget.window >> smaller
            fitted = await self._fitting.asked(part, facts, window, wrong=wrong)
            if fitted is None:
                break
            asked = fitted
            if part.keep_from is None and not asked.task.said:
                return await self._store(part, asked, Answer())
            try:
                reply = await self._reply(asked, is_held=is_held)
                found = read_answer(reply, asked.task)
            except ProviderError as error:
                failed = error
                smaller += error.kind == "too_long"
                is_held = False  # some servers refuse a schema
                continue
            if isinstance(found, Answer):
                return await self._store(part, asked, found)
            # The same question would get the same answer.
            is_held = failed is None
            wrong, said = f"{found.reason}{_AGAIN if attempt else ''}", reply.text or said
        if failed is not None and (part.keep_from is None or _is_for_later(failed)):
            if self._in_prompt(part):
                return await self._cut(part, failed)
            raise failed
        if asked is None:
            return await self._put_away(
                part, chunks(part.lines, self._budget.tokens, self._estimate)[0]
            )
        return await self._put_away(part, asked.lines, said=said)

    async def _make_lean(self, part: Part, facts: Sequence[Fact]) -> Commit | None:
        """The same of a small model: a summary, or facts, each by a request of its own.

        What is folded is learned from afterwards, so that one answer is about one thing.
        """
        asks = LeanExtraction(self._ask)
        is_fold = part.keep_from is not None
        wrong, said = "", ""
        for attempt in range(_TRIES):
            most = min(self._budget.tokens // 2, _LEAN_TOKENS) >> attempt
            lines = chunks(part.lines, most, self._estimate)[0]
            people = tuple(line for line in lines if line.id in part.said)
            task = Task(
                said=() if is_fold else people,
                known=known_facts(facts, people),
                fold=is_fold,
                summary=self._session.summary,
                words=_LEAN_WORDS,
            )
            if is_fold:
                found = await asks.summary(task, lines, wrong=wrong)
            elif people:
                found = await asks.facts(task, wrong=wrong)
            else:
                found = Answer()
            if isinstance(found, Answer):
                if not is_fold:
                    return await self._consolidate(
                        "learned", lines, learned=_last(lines), answer=found
                    )
                fold = Fold(_next_id(part, lines), found.summary)
                learned = self._session.seen.learned
                return await self._consolidate("folded", lines, learned=learned, fold=fold)
            wrong = f"{found.reason}{_AGAIN if attempt else ''}"
            said = self._said_last or said
        return await self._put_away(part, lines, said=said)

    def _in_prompt(self, part: Part) -> bool:
        """Whether it is folded out of prompts that it still stands in, and must leave."""
        if part.keep_from is None or self._wanted == "compact":
            return False
        return part.lines[0].id >= self._session.window_start

    async def _cut(self, part: Part, error: ProviderError) -> Commit | None:
        """Prompts get shorter at once; the summary is made when there is a model again."""
        assert part.keep_from is not None
        return await self._consolidate(
            "archived",
            part.lines,
            learned=self._session.seen.learned,
            cut=part.keep_from,
            note=f"{len(part.lines)} entries wait for their summary: {error}",
        )

    async def _build(self, prompt: Prompt, messages: Sequence[ChatMessage]) -> Prompt:
        return await self._means.build(self._session, messages) or prompt

    def _said(self, lines: Sequence[Line]) -> frozenset[int]:
        """The entries that facts may be taken from."""
        if not self._learns:
            return frozenset()
        person = self._session.person
        is_theirs = self._place == person_place(person)
        return frozenset(
            line.id
            for line in said_by_people(lines)
            if line.id > self._session.seen.learned
            # Where several speak under one name of a direct chat, nobody is told of another.
            and (not is_theirs or line.person == person)
        )

    # ── the model ──

    async def _ask(self, request: ModelRequest) -> ModelReply:
        reply = await self._reply_to(request, tokens_of(request, self._estimate))
        self._said_last = reply.text
        return reply

    async def _reply(self, asked: Asked, *, is_held: bool) -> ModelReply:
        request = asked.request
        if is_held:
            request = replace(request, wishes=answer_form(asked.task))
        return await self._reply_to(request, asked.tokens)

    async def _reply_to(self, request: ModelRequest, tokens: int) -> ModelReply:
        provider = self._provider
        if self._means.may_spend is not None:
            sentence = await self._means.may_spend(self._session, provider, tokens)
            if sentence is not None:
                raise NotNow(sentence)
        reply = await reply_of(provider, request)
        usage = reply.usage
        if usage.input_tokens + usage.output_tokens == 0:  # some servers tell no numbers
            said = self._estimate(ChatMessage("assistant", reply.text).size)
            usage = replace(usage, input_tokens=tokens, output_tokens=said)
        self._usage.append(usage if self._means.priced is None else self._means.priced(usage))
        return reply

    # ── the end ──

    async def _store(self, part: Part, asked: Asked, answer: Answer) -> Commit | None:
        lines, fold = asked.lines, None
        if part.keep_from is not None:
            fold = Fold(_next_id(part, lines), answer.summary)
        return await self._consolidate(
            "learned" if fold is None else "folded",
            lines,
            learned=max(self._session.seen.learned, _last(lines)),
            fold=fold,
            answer=answer,
        )

    async def _put_away(
        self, part: Part, lines: Sequence[Line], *, said: str = ""
    ) -> Commit | None:
        """As it is: the transcript has it. From what is folded so, facts can be taken later.

        What the model `said` instead goes into the log, shortened, for whoever runs it.
        """
        note = None
        if said.strip():
            shown = one_line(without_secrets(said), _LONGEST_SAID)
            note = f"{_note('archived', len(lines))}; it said: {shown}"
        if part.keep_from is None:
            kind: Literal["learned", "archived"] = "archived" if part.asks else "learned"
            return await self._consolidate(kind, lines, learned=_last(lines), note=note)
        summary = with_archived(self._session.summary, lines)
        fold = Fold(_next_id(part, lines), summary)
        return await self._consolidate(
            "archived", lines, learned=self._session.seen.learned, fold=fold, note=note
        )

    async def _consolidate(
        self,
        kind: Literal["learned", "folded", "archived"],
        lines: Sequence[Line],
        *,
        learned: int,
        fold: Fold | None = None,
        answer: Answer | None = None,
        cut: int | None = None,
        note: str | None = None,
    ) -> Commit | None:
        answer = answer or Answer()
        made = Consolidation(
            session=self._session.id,
            place=self._place,
            seen=self._session.seen,
            kind=kind,
            learned=learned,
            facts=answer.facts,
            forgets=answer.forgets,
            fold=fold,
            cut=cut,
            first=lines[0].id,
            last=_last(lines),
            by=self._usage[-1].model or self._provider.model if self._usage else "",
            note=_note(kind, len(lines)) if note is None else note,
            usage=tuple(self._usage),
            outside=sources_named(line.message for line in lines),
        )
        self._usage.clear()  # broken off in the midst of this, it may be stored all the same
        commit = await self._means.sessions.consolidate(made)
        if commit is None:
            self._usage += made.usage
        return commit


def _is_for_later(error: ProviderError) -> bool:
    """It says nothing of the conversation: nobody is there, or no such model."""
    return error.kind in _LATER or error.status == 404


def _next_id(part: Part, lines: Sequence[Line]) -> int:
    """The entry behind these lines of the part."""
    if len(lines) < len(part.lines):
        return part.lines[len(lines)].id
    assert part.keep_from is not None
    return part.keep_from


def _last(lines: Sequence[Line]) -> int:
    """Their newest entry. What was posted in the midst of a turn comes behind it."""
    return max(line.id for line in lines)


def _note(kind: Literal["learned", "folded", "archived"], count: int) -> str:
    entries = "1 entry" if count == 1 else f"{count} entries"
    if kind == "archived":
        return f"no model could make anything of {entries}"
    return f"from {entries}"
