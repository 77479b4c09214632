"""What the model is sent: the soul, a note on surface and person, and the part that fits. Pure.

The beginning stays the same from turn to turn, byte for byte, so that providers' caches hit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from parley.agent.person import LONGEST_INSTRUCTIONS, LONGEST_NAME, Soul
from parley.agent.tokens import estimate_tokens
from parley.protocol import ChatMessage, HistoryEntry, SessionSource, ToolCall

__all__ = [
    "DEFAULT_SOUL",
    "UNKNOWN_OUTCOME",
    "begins_turn",
    "build_lean_system",
    "build_system",
    "first_kept",
    "group_name",
    "mend",
    "plain_name",
    "sizes_of",
    "unanswered_calls",
    "wishes_of",
]

DEFAULT_SOUL = "You are a helpful AI assistant named Parley."

UNKNOWN_OUTCOME = (
    "The outcome of this call is unknown: the program ended before the result was seen. "
    "It may or may not have happened; find out before you do it again."
)

_A_MESSAGE = 28
_LONGEST_NAME = 40
_MOST_WORDS_OF_A_NAME = 5
_MOST_WORDS_OF_A_GROUP = 2
_NO_NAME = re.compile(r"[^\w.'’&+#-]+")
_NO_WISHES = Soul()
_SUMMARY = "Earlier in this conversation (a summary; session_search finds the messages themselves):"
_LEAN_SUMMARY = "What was said before:"
_INTERRUPTED = "[The person stopped this answer here.]"
_PLACES = {
    "terminal": "a terminal",
    "api": "an API client",
    "direct": "another agent's chat",
    "task": "the background",
    "web": "a web page",
}


class Spoken(Protocol):
    """An entry of a transcript, as far as it matters where one may be cut."""

    @property
    def message(self) -> ChatMessage: ...


def build_system(
    soul: str,
    source: SessionSource,
    *,
    brief: bool = False,
    skills: str = "",
    person: Soul = _NO_WISHES,
    instructions: str = "",
    memory: str = "",
    summary: str = "",
) -> str:
    """The system prompt. Nothing in it changes from turn to turn of a session.

    Except at its end: what the `person` wishes, a program's `instructions`, then `memory` and the
    `summary` of what came before. When one changes, all before it stays as it was. `brief` leaves
    out the note, and with it what is remembered: a very small model takes those for the topic.
    """
    wishes = wishes_of(person)
    if brief:
        short = (soul.strip() or DEFAULT_SOUL, wishes, instructions)
        return "\n\n".join(part for part in short if part)
    place = _PLACES.get(source.platform, source.platform.capitalize())
    note = f"You are talking in {place}"
    if who := plain_name(source.user_name):
        note += f" with {who}"
    if source.chat_type != "dm":
        group = group_name(source.chat_name)
        note += f" in the group {group}" if group else " in a group"
    before = f"{_SUMMARY}\n{summary.strip()}" if summary.strip() else ""
    own = (soul.strip() or DEFAULT_SOUL, f"{note}.", skills)
    parts = (*own, wishes, instructions, memory.strip(), before)
    return "\n\n".join(part for part in parts if part)


def build_lean_system(
    soul: str,
    source: SessionSource,
    *,
    skills: str = "",
    person: Soul = _NO_WISHES,
    instructions: str = "",
    memory: str = "",
    summary: str = "",
) -> str:
    """The system prompt for a small model: the same parts, each in as few words as will do.

    What changes most comes last, so that all before it stays in the model's cache.
    """
    name = plain_name(source.user_name)
    who = f"You talk with {name}." if name else ""
    before = f"{_LEAN_SUMMARY}\n{summary.strip()}" if summary.strip() else ""
    own = (soul.strip() or DEFAULT_SOUL, skills, who, wishes_of(person), instructions)
    return "\n".join(part for part in (*own, memory.strip(), before) if part)


def plain_name(name: str | None) -> str:
    """A name that others chose, as the prompt has it: a few plain words, with no room for more.

    Names of people and rooms stand in every prompt, so they must not be able to say anything.
    """
    words = " ".join(_NO_NAME.sub(" ", name or "").split()[:_MOST_WORDS_OF_A_NAME])
    return words[:_LONGEST_NAME].strip()


def group_name(name: str | None) -> str:
    """The name of a group, if it is a word or two: anyone in it may have chosen it.

    A longer one, or one with a number or an address in it, could tell the agent what to do.
    """
    words = plain_name(name).split()
    return " ".join(words) if len(words) <= _MOST_WORDS_OF_A_GROUP and _are_letters(words) else ""


def _are_letters(words: Sequence[str]) -> bool:
    return all(word.strip("'’&+#-").isalpha() or not word.strip("'’&+#-") for word in words)


def wishes_of(person: Soul) -> str:
    """Marked as theirs: they say how the agent is to be, and not what it may do."""
    name = " ".join(person.name.split())[:LONGEST_NAME]
    instructions = person.instructions.strip()[:LONGEST_INSTRUCTIONS]
    said = [f"This person calls you {name}."] if name else []
    if instructions:
        said += ["They wish, within what you may do:", instructions]
    return "\n".join(said)


def first_kept(
    history: Sequence[HistoryEntry], *, budget: int, known: Sequence[int] | None = None
) -> int:
    """The index in `history` from which it fits `budget`: 0 when all of it does.

    When it does not, it is cut to half the budget, so that the beginning then stays the same for
    many turns; and only ever before a person's message. `known` are the sizes of the entries.
    """
    sizes = [estimate_tokens(size) for size in known or [entry.size for entry in history]]
    if sum(sizes) <= budget:
        return 0
    # When the newest turn alone is more than half, it is kept as long as it fits at all.
    for room in (budget // 2, budget):
        kept, index = 0, len(history)
        while index > 0 and kept + sizes[index - 1] <= room:
            index -= 1
            kept += sizes[index]
        while index < len(history) and not begins_turn(history, index):
            index += 1
        if index < len(history):
            return index
    return len(history)


def begins_turn(history: Sequence[Spoken], index: int) -> bool:
    """A person's message that does not come in the midst of tool calls."""
    if history[index].message.role != "user":
        return False
    return index == 0 or history[index - 1].message.role != "tool"


def mend(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Make a transcript that was cut, stopped or failed into one that every provider takes.

    Each call is followed by exactly one result. Ids are looked up from a reply to the next only:
    some servers begin to count anew with each reply.
    """
    mended: list[ChatMessage] = []
    for index, message in enumerate(messages):
        role, note = message.role, message.note
        if role == "tool" or note == "failed":
            continue  # a result comes with its call
        if role == "user":
            mended.append(message)
        elif message.text or message.tool_calls:
            mended.append(_marked(message) if note == "interrupted" else message)
            if message.tool_calls:
                results = _results_of(messages, index)
                mended += [results.get(call.id) or _unknown(call) for call in message.tool_calls]
    return tuple(mended)


def sizes_of(history: Sequence[HistoryEntry]) -> list[int]:
    """Of each entry, with the results that `mend` puts behind calls that have none."""
    messages = [entry.message for entry in history]
    sizes = [entry.size for entry in history]
    for index, message in enumerate(messages):
        if message.tool_calls and message.note != "failed":
            results = _results_of(messages, index)
            unknown = [_unknown(call) for call in message.tool_calls if call.id not in results]
            # Each is a message of its own, which costs a little more than its words.
            sizes[index] += sum(each.size + _A_MESSAGE for each in unknown)
    return sizes


def _marked(message: ChatMessage) -> ChatMessage:
    return replace(message, text=f"{message.text}\n{_INTERRUPTED}")


def unanswered_calls(messages: Sequence[ChatMessage]) -> tuple[ToolCall, ...]:
    """Calls of the newest reply that have no result yet."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "assistant":
            results = _results_of(messages, index)
            return tuple(call for call in messages[index].tool_calls if call.id not in results)
    return ()


def _results_of(messages: Sequence[ChatMessage], index: int) -> dict[str, ChatMessage]:
    """The results of the reply at `index`, by the id of their call."""
    results: dict[str, ChatMessage] = {}
    for position in range(index + 1, len(messages)):
        message = messages[position]
        if message.role == "assistant":
            break
        if message.role == "tool" and message.tool_call_id is not None:
            told = replace(message, attachments=()) if message.attachments else message
            results.setdefault(message.tool_call_id, told)
    return results


def _unknown(call: ToolCall) -> ChatMessage:
    return ChatMessage(
        "tool",
        UNKNOWN_OUTCOME,
        tool_call_id=call.id,
        tool_name=call.name,
        note="unknown-outcome",
    )
