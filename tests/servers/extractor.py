"""A model by rules, for conversations of simple sentences: it remembers as a good one would.

It answers talk with a few words, takes back what it is asked to forget with the `memory` tool, and
when it is asked what is worth remembering it says so in JSON. Use it as a `ScriptedModel`'s script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.servers.scripted_reply import Reply, Usage

__all__ = ["Asked", "Extractor", "count_tokens", "things_in"]

_SMALL_TALK = (
    "In short: it depends on three things, and the second of them is usually left out. Most of "
    "what is repeated about it comes from one old source that nobody has looked at again."
)
_HOUSEKEEPING = "it is housekeeping"
_KNOWN, _SAID = "Known already, by number:", "Messages that facts may come from, by number:"
_NUMBERED = re.compile(r"^- (\d+) \([^)]*\): (.*)$", re.MULTILINE)
_NOTED = re.compile(r"^- Noted about ([^:]+): (.*)$", re.MULTILINE)
_TOKEN = re.compile(r"[A-Za-z]{1,5}|\d{1,3}|[^\sA-Za-z\d]")

_TOPIC, _VALUE = r"(?P<topic>[\w' ]+?)", r"(?P<value>[\w-]+(?: [\w-]+)*)"
_TOLD = (
    (rf"\bmy {_TOPIC} is (?:called |named |on |in |to |by |a |an |the )*{_VALUE}", None),
    (rf"\bI prefer {_VALUE} for {_TOPIC}\.", None),
    (rf"\bthe {_TOPIC}(?: of the shop)? is (?:called )?{_VALUE}\.", None),
    (r"\bI live in (?P<value>\w+)", "home town"),
    (r"\bI work as an? (?P<value>\w+)", "job"),
    (r"\bI am allergic to (?P<value>\w+)", "allergy"),
    (r"\bI drive an? (?P<value>\w+)", "car"),
    (r"\bI play the (?P<value>\w+)", "instrument"),
    (r"\bI am learning (?P<value>\w+)", "new language"),
)
_CORRECTED = (
    (rf"(?P<value>\w+) is my {_TOPIC} now\b", None),
    (rf"\bmake that an? (?P<value>\w+) for my {_TOPIC}\.", None),
    (rf"\bthe {_TOPIC} I use these days is an? (?P<value>\w+)", None),
    (rf"\bthe {_TOPIC} was moved to (?P<value>\w+)", None),
    (r"\bI am now employed as an? (?P<value>\w+)", "job"),
)
_FORGOTTEN = re.compile(rf"\bplease forget my {_TOPIC}[,;.]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it was counted: in tokens of this model's own, and in bytes."""

    what: Literal["turn", "housekeeping"]
    tokens: int
    size: int


class Extractor:
    """`asked` is every request so far, in order."""

    def __init__(self, *, delay: float = 0.0) -> None:
        self.asked: list[Asked] = []
        self._delay = delay

    def __call__(self, request: Mapping[str, Any]) -> Reply:
        """`delay` is how long it thinks about what to remember."""
        tokens = count_tokens(request)
        usage = Usage(input=tokens, output=40)
        size = len(json.dumps(request, ensure_ascii=False).encode())
        task = _text(request["messages"][-1])
        if _HOUSEKEEPING in task:
            self.asked.append(Asked("housekeeping", tokens, size))
            return Reply(text=_remember(request, task), usage=usage, delay=self._delay)
        self.asked.append(Asked("turn", tokens, size))
        return _answer(request, usage)


def count_tokens(request: Mapping[str, Any]) -> int:
    """Pieces of words and marks: not the way Parley estimates them."""
    texts = [_text(message) for message in request["messages"]]
    calls = [json.dumps(message.get("tool_calls", "")) for message in request["messages"]]
    whole = "\n".join((*texts, *calls, json.dumps(request.get("tools", ""))))
    return len(_TOKEN.findall(whole)) + 4 * len(texts)


def things_in(text: str) -> Iterator[tuple[str, str, bool]]:
    """What a person tells in it: the topic, its value, and whether that is news."""
    for rules, is_news in ((_CORRECTED, True), (_TOLD, False)):
        for pattern, topic in rules:
            if found := re.search(pattern, text, re.IGNORECASE):
                yield (topic or found["topic"]).lower(), found["value"], is_news
                return


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content if isinstance(content, str) else ""


# ── remembering ───────────────────────────────────────────────────────────────────────────────


def _remember(request: Mapping[str, Any], task: str) -> str:
    before, _, said = task.partition(_SAID)
    known = {int(id): text for id, text in _NUMBERED.findall(before.partition(_KNOWN)[2])}
    facts: dict[str, dict[str, Any]] = {}
    forgets: set[int] = set()
    for id, text in _NUMBERED.findall(said):
        for topic, value, _ in things_in(text):
            sentence = f"Their {topic} is {value}."
            older = [number for number, fact in known.items() if _is_about(topic, fact)]
            if sentence not in known.values():
                facts[topic] = {
                    "text": sentence,
                    "kind": "person",
                    "confidence": 0.9,
                    "sources": [int(id)],
                    "replaces": older,
                }
        if asked := _FORGOTTEN.search(text):
            topic = asked["topic"].lower()
            facts.pop(topic, None)
            forgets.update(number for number, fact in known.items() if _is_about(topic, fact))
    answer: dict[str, Any] = {"facts": list(facts.values()), "forget": sorted(forgets)}
    if '"summary"' in before:
        answer["summary"] = _summary(request)
    return json.dumps(answer)


def _is_about(topic: str, fact: str) -> bool:
    return fact.lower().startswith(f"their {topic} is ")


def _summary(request: Mapping[str, Any]) -> str:
    """What the last one noted, as it is by now, and what was told since."""
    *conversation, _ = request["messages"]
    noted = dict[str, str]()
    for topic, sentence in _NOTED.findall("\n".join(map(_text, request["messages"]))):
        noted[topic] = sentence
    for text in (_text(message) for message in conversation if message["role"] == "user"):
        for topic, value, _ in things_in(text):
            noted[topic] = f"Their {topic} is {value}."
        if asked := _FORGOTTEN.search(text):
            noted.pop(asked["topic"].lower(), None)
    lines = (f"- Noted about {topic}: {sentence}" for topic, sentence in noted.items())
    return "\n".join(("- They talked about how things in the world work.", *lines))


# ── talking ───────────────────────────────────────────────────────────────────────────────────


def _answer(request: Mapping[str, Any], usage: Usage) -> Reply:
    messages: Sequence[Mapping[str, Any]] = request["messages"]
    last = max(at for at, message in enumerate(messages) if message["role"] == "user")
    asked = _FORGOTTEN.search(_text(messages[last]))
    if asked is None:
        return Reply(text=_SMALL_TALK, usage=usage)
    results = [_text(message) for message in messages[last:] if message["role"] == "tool"]
    topic = asked["topic"].lower()
    if not results:
        call = ("memory", {"action": "search", "text": topic})
        return Reply(tool_calls=(call,), usage=usage)
    ids = _ids_about(topic, results[0]) if len(results) == 1 else []
    if ids:
        return Reply(tool_calls=(("memory", {"action": "forget", "ids": ids}),), usage=usage)
    return Reply(text="It is forgotten.", usage=usage)


def _ids_about(topic: str, result: str) -> list[int]:
    found = re.findall(r"^\[(\d+)\] (.*)$", result, re.MULTILINE)
    return [int(id) for id, fact in found if _is_about(topic, fact)]
