"""What a model made of a conversation, read with care: nothing it says is taken on trust. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

from parley.agent.foreign import clean
from parley.agent.providers.base import ModelReply
from parley.memory.asking import KINDS, Task
from parley.memory.secrets import looks_secret, without_secrets
from parley.memory.wording import OUTSIDE_CONFIDENCE
from parley.memory.words import stems, telling
from parley.storage.memory import Line, NewFact

__all__ = ["Answer", "Nonsense", "read_answer"]

_MOST_FACTS = 50
_MOST_SOURCES = 10
_LONGEST_FACT = 500
_LONGEST_TEXT = 200_000
_MOST_TRIES = 200
_CHARACTERS_A_WORD = 12
_LEAST_BEGINNING = 4
_USUAL_CONFIDENCE = 0.7
_MOST_OTHERS = 2  # of so many words that tell of a fact one at least is the person's
_NAMED = re.compile(r"(?<=\s)[A-ZÀ-Þ]\w+")
_NUMBER_IN = re.compile(r"\d+")
_DATE = re.compile(r"\b(?:19|20)\d\d(?:-\d\d?(?:-\d\d?)?)?\b")  # instead of “tomorrow”
_THOUGHT = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THOUGHT_OUT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,18}")
_KEYS = frozenset(("facts", "forget", "summary"))
_Held: TypeAlias = Callable[[], list[tuple[frozenset[str], Line]]]
"""The words of what was said, which not every answer needs."""


@dataclass(frozen=True, slots=True)
class Answer:
    facts: tuple[NewFact, ...] = ()
    forgets: tuple[int, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Nonsense:
    """Nothing can be made of it. The `reason` holds none of its words."""

    reason: str


def read_answer(reply: ModelReply, task: Task) -> Answer | Nonsense:
    """A fact without a receipt, or one that looks like a secret, is left out."""
    if reply.tool_calls:
        return Nonsense("it called a tool")
    text = _without_thoughts(reply.text[:_LONGEST_TEXT]).strip()
    if not text:
        return Nonsense("it was empty")
    record = _object_in(text)
    if record is None:
        return Nonsense("it was no JSON object of the form that was asked for")
    given = record.get("facts", [])
    if not isinstance(given, list):
        return Nonsense("its facts were no list")
    summary = _summary(record.get("summary"), task) if task.fold else ""
    if task.fold and not summary:
        return Nonsense("it had no summary")
    if not task.said:
        return Answer(summary=summary)
    forgets = _ids(record.get("forget"), _forgettable(task))
    facts = tuple(_facts(given, task, without=forgets))
    return Answer(facts, forgets, summary)


# ── the object ────────────────────────────────────────────────────────────────────────────────


def _without_thoughts(text: str) -> str:
    kept: list[str] = []
    at = 0
    while (begin := _THOUGHT.search(text, at)) is not None:
        end = _THOUGHT_OUT.search(text, begin.end())
        if end is None:
            break
        kept.append(text[at : begin.start()])
        at = end.end()
    return "".join((*kept, text[at:]))


def _object_in(text: str) -> dict[str, Any] | None:
    """The last object in the text that has one of the keys; words may stand around it."""
    decoder = json.JSONDecoder()
    found: dict[str, Any] | None = (
        {} if re.fullmatch(r"(```\w*\s*)?\{\s*\}(\s*```)?", text) else None
    )
    at = 0
    for _ in range(_MOST_TRIES):
        at = text.find("{", at)
        if at < 0:
            break
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if isinstance(value, dict) and not _KEYS.isdisjoint(value):
            found = value
    return found


def _summary(value: object, task: Task) -> str:
    if isinstance(value, list):
        value = "\n".join(line for line in value if isinstance(line, str))
    if not isinstance(value, str):
        return ""
    most = task.words * _CHARACTERS_A_WORD
    text = without_secrets(clean(value).strip()[: 2 * most])
    if not _says_something(text):
        return ""
    if len(text) <= most:
        return text
    return text[:most].rpartition("\n")[0].strip() or text[:most]


def _says_something(text: str) -> bool:
    """More than the dots of the form that was shown to it."""
    return any(sign.isalnum() for sign in text)


# ── its facts ─────────────────────────────────────────────────────────────────────────────────


def _facts(given: Sequence[object], task: Task, *, without: Collection[int]) -> Iterator[NewFact]:
    known = {fact.id for fact in task.known} - set(without)
    texts: set[str] = set()
    held = cache(lambda: [(stems(line.message.text), line) for line in task.said])
    for value in given[: 2 * _MOST_FACTS]:
        fact = _fact(value, task, held, known) if isinstance(value, dict) else None
        if fact is None or fact.text.casefold() in texts:
            continue
        texts.add(fact.text.casefold())
        yield fact
        if len(texts) == _MOST_FACTS:
            return


def _fact(value: dict[str, Any], task: Task, held: _Held, known: Collection[int]) -> NewFact | None:
    text, kind = value.get("text"), value.get("kind", "other")
    confidence = value.get("confidence", _USUAL_CONFIDENCE)
    if not isinstance(text, str) or not isinstance(kind, str):
        return None
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        return None
    confidence = min(max(confidence, 0), 1)  # before it is a float: no number is too large
    text = " ".join(clean(text).split())
    text = text if len(text) <= _LONGEST_FACT else text[: _LONGEST_FACT - 1] + "…"
    if not _says_something(text) or math.isnan(confidence) or looks_secret(text):
        return None
    sources = _sources(value.get("sources"), text, task.said, held)
    if not sources:
        return None
    kind = kind.strip().lower()
    new = NewFact(
        text=text,
        kind=kind if kind in KINDS else "other",
        confidence=float(confidence),
        sources=tuple(line.id for line in sources),
        replaces=_ids(value.get("replaces"), known),
        person=sources[0].person,
        said_at=max(line.at for line in sources),
    )
    outside = _outside(text, sources, task)
    if not outside:
        return new
    # It takes the place of nothing that a person said.
    sure = min(new.confidence, OUTSIDE_CONFIDENCE)
    return replace(new, confidence=sure, replaces=(), outside=outside)


def _outside(text: str, sources: Sequence[Line], task: Task) -> str:
    """Where a fact may come from that the people it is said to come from did not tell.

    Its words must be theirs, where the model was shown other text as well.
    """
    own = [line.message.text for line in sources if not line.message.outside]
    if not own:
        return sources[0].message.outside or ""
    if not task.outside:
        return ""
    words = telling(text)
    told = frozenset().union(*map(stems, own))
    by_all = " ".join(
        (
            *own,
            *(line.message.text for line in task.said if not line.message.outside),
            *(fact.text for fact in task.known if not fact.outside),
        )
    )
    is_told = _MOST_OTHERS * len(words & told) >= len(words)
    # Of long numbers and words the beginnings are alike: a number is told as it stands, or not.
    numbers, names = _numbers(text), _NAMED.findall(text)
    is_known = numbers <= _numbers(by_all) and stems(" ".join(names)) <= stems(by_all)
    return "" if is_told and is_known else task.outside


def _numbers(text: str) -> frozenset[str]:
    return frozenset(_NUMBER_IN.findall(_DATE.sub(" ", text)))


def _sources(value: object, text: str, said: Sequence[Line], held: _Held) -> list[Line]:
    """Those it names; else the messages that have most of its words in them."""
    by_id = {line.id: line for line in said}
    named = [by_id[id] for id in _ids(value, by_id)]
    if named:
        return named[:_MOST_SOURCES]
    words = telling(text)
    scores = [(len(words & found), line) for found, line in held()]
    most = max((score for score, _ in scores), default=0)
    return [line for score, line in scores if score == most][:3] if most else []


def _forgettable(task: Task) -> set[int]:
    """Facts from the words of those who speak here: nobody takes back what another said.

    Where several speak, or there is text from outside, those that whoever said them speaks of
    again: it is they who may ask.
    """
    said: dict[str, list[str]] = {}
    for line in task.said:
        if line.message.outside:
            continue
        said.setdefault(line.person, []).append(line.message.text)
    theirs = [fact for fact in task.known if fact.person in said]
    if len(said) > 1 or task.outside:
        words = {person: stems(" ".join(texts)) for person, texts in said.items()}
        theirs = [fact for fact in theirs if _speak_of(words[fact.person], fact.text)]
    return {fact.id for fact in theirs}


def _speak_of(words: Collection[str], fact: str) -> bool:
    """Whether one of the words is one that tells of the fact, or begins as it does."""
    long = [word for word in words if len(word) >= _LEAST_BEGINNING]
    return any(
        told in words or (len(told) > _LEAST_BEGINNING and told.startswith(tuple(long)))
        for told in telling(fact)
    )


def _ids(value: object, offered: Collection[int]) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    found: dict[int, None] = {}
    for each in values[:1_000]:
        number = int(each) if isinstance(each, str) and _NUMBER.fullmatch(each) else each
        if isinstance(number, int) and not isinstance(number, bool) and number in offered:
            found[number] = None
    return tuple(found)
