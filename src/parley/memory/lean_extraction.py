"""Facts and summaries from a small model: short requests of their own, each held to a schema.

Behind a conversation's own prompt a small model answers the conversation. Asked for one thing at a
time it does well, and what it says is checked against the message it names, and by a question that
can only be answered with yes or no.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from parley.agent.foreign import one_line
from parley.agent.providers.base import ModelReply, ModelRequest
from parley.memory.answer import Answer, Nonsense, read_answer
from parley.memory.asking import Task
from parley.memory.words import shared, stems, telling
from parley.protocol import ChatMessage, Wishes
from parley.storage.memory import Fact, Line, NewFact

__all__ = ["LeanExtraction", "facts_request", "summary_request"]

_LONGEST_MESSAGE: Final = 1_200
_MOST_FACTS: Final = 12
_FORGETS: Final = re.compile(r"\b(forget|vergiss|oublie|olvida)\b", re.IGNORECASE)
_NAME: Final = re.compile(r"(?<=\s)[A-ZÀ-Þ]\w+|\b\d+\b")
_ANYONES: Final = frozenset({"the", "his", "her", "mein", "meine"})
_CHANGES: Final = re.compile(
    r"\b(now|not|no longer|any ?more|instead|moved|changed|actually|correction|wrong|new)\b"
    r"|\b(jetzt|nicht mehr|umgezogen|statt|plus maintenant|ya no|ahora)\b",
    re.IGNORECASE,
)
_OURS: Final = frozenset({"I", "Person"})
_FACTS: Final = """\
You note what a person tells about themselves: names, family, pets, home, work, health, habits, \
plans, likes. One short sentence for each fact, in the third person, with the number of its \
message. Leave out questions, tasks and general knowledge. Without facts the list is empty.

1: Hi, I'm Tom and I work as a baker in Leeds.
2: What's the capital of Peru?
3: My cat Molly is three.
{"facts": [{"text": "The person's name is Tom.", "source": 1}, {"text": "Tom works as a baker in \
Leeds.", "source": 1}, {"text": "Tom's cat Molly is three years old.", "source": 3}]}

1: Can you sort this list for me?
2: The Danube flows through Vienna.
{"facts": []}"""
_SUMMARY: Final = """\
You summarize a conversation for somebody who goes on with it: what the person asked for and told, \
what was answered or decided, names, numbers, open points. Short lines that begin with "- ", at \
most {words} words in all, in the language of the conversation. Only what was said."""
_YES_NO: Final = "You check notes. Answer yes or no."
_WRONG: Final = (
    "Your last answer could not be used: {reason}. Answer in the form that was asked for."
)


@dataclass(frozen=True, slots=True)
class LeanExtraction:
    """Asks a small model by `ask`, one short question after the other."""

    ask: Callable[[ModelRequest], Awaitable[ModelReply]]

    async def facts(self, task: Task, *, wrong: str = "") -> Answer | Nonsense:
        """What people told of themselves in `task.said`, with what it corrects or forgets."""
        told = tuple(line for line in task.said if not _is_question(line.message.text))
        if not told:
            return Answer()
        reply = await self.ask(facts_request(told, wrong=wrong))
        found = read_answer(_by_line(reply, told), task)
        if isinstance(found, Nonsense):
            return found
        by_id = {line.id: line for line in task.said}
        words = frozenset().union(*(stems(each.message.text) for each in told))
        words |= frozenset().union(*(stems(each.text) for each in task.known))
        asked_to_forget = [line for line in task.said if _FORGETS.search(line.message.text)]
        facts: list[NewFact] = []
        for fact in found.facts[:_MOST_FACTS]:
            source = by_id[fact.sources[0]]
            if source in asked_to_forget or not _is_from(fact.text, source, words):
                continue
            if await self._is_so(_told(source, fact.text)):
                facts.append(await self._corrected(fact, source, task.known))
        forgets = [
            known.id
            for line in asked_to_forget
            for known in _alike(task.known, line.message.text, least=1)
            if await self._is_so(_to_forget(line, known))
        ]
        return Answer(tuple(facts), tuple(dict.fromkeys(forgets)))

    async def summary(
        self, task: Task, lines: Sequence[Line], *, wrong: str = ""
    ) -> Answer | Nonsense:
        request = summary_request(lines, task.summary, words=task.words, wrong=wrong)
        return read_answer(await self.ask(request), task)

    async def _corrected(self, fact: NewFact, source: Line, known: Sequence[Fact]) -> NewFact:
        """The fact with the one that it takes the place of, if there is one.

        A small model says yes too often: it is asked about facts that are much alike, and about
        others only where the person speaks of a change.
        """
        changes = _CHANGES.search(source.message.text) is not None
        for each in _alike(known, fact.text, least=1):
            words = _words(each.text)
            if not changes and 2 * len(words & _words(fact.text)) < len(words):
                continue
            question = (
                f"Earlier note: “{one_line(each.text, 300)}”\nNewer note: “{fact.text}”\n"
                "Do both speak of the same thing, so that the newer one takes the place of the "
                "earlier one?"
            )
            if await self._is_so(question):
                return replace(fact, replaces=() if fact.outside else (each.id,))
        return fact

    async def _is_so(self, question: str) -> bool:
        request = ModelRequest(
            _YES_NO,
            (ChatMessage("user", question),),
            max_output_tokens=16,
            wishes=_held_to({"answer": {"type": "string", "enum": ["yes", "no"]}}, "answer"),
        )
        reply = await self.ask(request)
        return '"yes"' in reply.text


def facts_request(said: Sequence[Line], *, wrong: str = "") -> ModelRequest:
    """The messages by numbers from 1, and nothing else: the system prompt stays in the cache."""
    lines = [f"{n}: {_shown(line)}" for n, line in enumerate(said, start=1)]
    numbers = {"type": "integer", "minimum": 1, "maximum": max(1, len(said))}
    fact = _object({"text": {"type": "string", "minLength": 3}, "source": numbers})
    return ModelRequest(
        _FACTS,
        (ChatMessage("user", "\n".join([*lines, *_wrong(wrong)])),),
        max_output_tokens=600,
        wishes=_held_to({"facts": {"type": "array", "items": fact}}, "facts"),
    )


def summary_request(
    lines: Sequence[Line], summary: str, *, words: int, wrong: str = ""
) -> ModelRequest:
    said = [f"Earlier: {summary}"] if summary else []
    for line in lines:
        if line.message.role in ("user", "assistant") and line.message.text.strip():
            who = "Person" if line.message.role == "user" else "You"
            said.append(f"{who}: {_shown(line)}")
    return ModelRequest(
        _SUMMARY.format(words=words),
        (ChatMessage("user", "\n".join([*said, *_wrong(wrong)])),),
        max_output_tokens=max(120, words * 2),
        wishes=_held_to({"summary": {"type": "string", "minLength": 10}}, "summary"),
    )


def _shown(line: Line) -> str:
    return one_line(line.message.text, _LONGEST_MESSAGE)


def _wrong(reason: str) -> list[str]:
    return ["", _WRONG.format(reason=reason)] if reason else []


def _is_question(text: str) -> bool:
    """Whether it asks and tells nothing: what is known of it is general knowledge."""
    sentences = [each for each in re.split(r"(?<=[.!?…])\s+", text.strip()) if each]
    return bool(sentences) and all(each.endswith("?") for each in sentences)


def _is_from(fact: str, source: Line, words: frozenset[str]) -> bool:
    """Whether it speaks of what its message does, with no name or number that nobody told."""
    if not telling(fact) & stems(source.message.text):
        return False
    named = [word for word in _NAME.findall(fact) if word not in _OURS]
    return all(stems(word) & words for word in named)


def _told(source: Line, fact: str) -> str:
    return (
        f"A person wrote: “{_shown(source)}”\nNote: “{fact}”\n"
        "Does the person tell this about themselves, their people, things, plans or likes?"
    )


def _to_forget(line: Line, known: Fact) -> str:
    return (
        f"A person wrote: “{_shown(line)}”\nNote: “{one_line(known.text, 300)}”\n"
        "Does the person ask to forget what this note says?"
    )


def _alike(known: Sequence[Fact], text: str, *, least: int) -> list[Fact]:
    """Facts that share so many telling words with the text, the most alike first."""
    words = _words(text)
    scored = [(shared(words, fact.text), fact) for fact in known]
    scored.sort(key=lambda pair: pair[0], reverse=True)
    return [fact for score, fact in scored if score >= least][:3]


def _words(text: str) -> frozenset[str]:
    return telling(text) - _ANYONES


def _by_line(reply: ModelReply, said: Sequence[Line]) -> ModelReply:
    """The reply with the numbers of lines in place of the numbers that the model was shown."""
    try:
        facts = json.loads(reply.text)["facts"]
        for fact in facts:
            place = fact.pop("source") - 1
            fact["sources"] = [said[place].id] if 0 <= place < len(said) else []
    except (ValueError, LookupError, TypeError, AttributeError):
        return reply
    return ModelReply(json.dumps({"facts": facts}), reply.usage)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _held_to(properties: dict[str, Any], name: str) -> Wishes:
    schema = {"name": name, "schema": _object(properties), "strict": True}
    return Wishes(response_format={"type": "json_schema", "json_schema": schema})
