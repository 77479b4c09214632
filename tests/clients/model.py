"""What the model behind the gateway says to client libraries. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.servers.scripted_reply import Reply

__all__ = ["reply_to"]

PLACE = {"city": "Paris", "country": "France"}
_TOWNS = ("Oslo", "Rome")


def reply_to(asked: Mapping[str, Any]) -> Reply:
    """A JSON place, calls of `weather`, what those calls found, or the question in reverse.

    Words come in several chunks. Results are told with the arguments of the call that each of
    them answers, so that a lost or swapped result shows.
    """
    messages = asked["messages"]
    text, results = _last_question(messages)
    names = [tool["function"]["name"] for tool in asked.get("tools", ())]
    form = asked.get("response_format")
    choice = asked.get("tool_choice")
    towns = [town for town in _TOWNS if town in text]
    if "weather" in names and towns and not results:
        return Reply(tool_calls=tuple(("weather", {"town": town}) for town in towns))
    if choice not in (None, "auto", "none"):
        # The first that is offered: a tool of the profile's own, were there any.
        first = next(name for name in names if name != "weather")
        name = first if isinstance(choice, str) else choice["function"]["name"]
        return Reply(tool_calls=((name, PLACE),))
    if form is not None:
        return Reply(text=json.dumps(PLACE), chunks=4)
    if results:
        return Reply(text="; ".join(results), chunks=5)
    return Reply(text=text[::-1], chunks=5)


def _last_question(messages: list[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """The last words of the user, and what the calls after them found."""
    text = ""
    results: list[str] = []
    towns: dict[str, str] = {}
    for message in messages:
        if message["role"] == "user":
            text, results = _plain(message["content"]), []
        for call in message.get("tool_calls") or ():
            towns[call["id"]] = json.loads(call["function"]["arguments"]).get("town", "")
        if message["role"] == "tool":
            town = towns.get(message["tool_call_id"], "?")
            results.append(f"{town}: {_plain(message['content'])}")
    return text, results


def _plain(content: object) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return str(content)
