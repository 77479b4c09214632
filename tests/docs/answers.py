"""What the model says to the examples for programs, so that their pages read as they would be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.docs.deeds import answer_deeds
from tests.servers.scripted_reply import Reply

__all__ = ["answer_examples"]

_ANSWERS = {
    "What is the capital of France?": "The capital of France is Paris.",
    "And of Japan?": "The capital of Japan is Tokyo.",
    "Count to five.": "One, two, three, four, five.",
    "My name is Ann.": "Hello, Ann.",
    "Which city is the capital of France?": '{"city": "Paris", "country": "France"}',
}
_STORY = " ".join(f"And then, on day {day}, they sailed on." for day in range(1, 61))


def answer_examples(asked: Mapping[str, Any]) -> Reply | None:
    """The reply to the last words of a conversation; to a question not known here, none."""
    deed = answer_deeds(asked)
    if deed is not None:
        return deed
    *before, last = asked["messages"]
    if last["role"] == "tool":
        return Reply(f"It is {last['content']} in Paris.")
    words = _text(last["content"])
    if words == "What is the weather in Paris?" and asked.get("tools"):
        return Reply(tool_calls=(("get_weather", {"city": "Paris"}),))
    if words == "What is in this picture?" and _holds_a_picture(last["content"]):
        return Reply("A red square.")
    if words == "What is my name?":
        knows = any("Ann" in _text(message["content"]) for message in before)
        return Reply("Your name is Ann." if knows else "I do not know your name.")
    if words == "What time is it?":
        return Reply(tool_calls=(("now", {}),)) if asked.get("tools") else None
    if words == "Tell me a long story.":
        return Reply(_STORY, chunks=60, chunk_delay=1)
    text = _ANSWERS.get(words)
    return None if text is None else Reply(text, chunks=5)


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content if isinstance(content, str) else ""


def _holds_a_picture(content: object) -> bool:
    return isinstance(content, list) and any(part["type"] == "image_url" for part in content)
