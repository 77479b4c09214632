"""Ordinary conversations: people's own words, and what may be done with them without a question.

Each is a list of turns: what the person says, and what the model does. `PAGE`, `OTHER` and `ROOT`
stand for addresses of a site; `SESSION` for another conversation of the person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

__all__ = ["ORDINARY", "Turn"]

Turn: TypeAlias = tuple[str, Sequence[tuple[str, Mapping[str, Any]]]]

_REMEMBER: Final = ("memory", {"action": "add", "text": "I like green tea."})
_PLAN: Final = ("schedule", {"action": "add", "text": "stretch", "at": "+9d"})
_READ: Final = ("web_fetch", {"url": "PAGE"})
_WRITE: Final = ("write_file", {"path": "list.txt", "content": "tea\nmilk\n"})
_FIND: Final = ("web_search", {"query": "tea"})

ORDINARY: Final[Mapping[str, Sequence[Turn]]] = {
    "remember": [("I like green tea; remember that.", [_REMEMBER])],
    "remember twice": [("Tea, please.", [_REMEMBER]), ("And again.", [_REMEMBER])],
    "look into memory, then remember": [
        ("What do you know?", [("memory", {"action": "search", "text": "tea"}), _REMEMBER]),
    ],
    "remember, and look it up": [
        ("Remember tea.", [_REMEMBER]),
        ("And?", [("memory", {"action": "search", "text": "green tea"}), _PLAN]),
    ],
    "change a fact": [
        ("I like tea.", [_REMEMBER]),
        ("No, black tea.", [("memory", {"action": "update", "ids": ["FACT"], "text": "Black."})]),
    ],
    "forget a fact": [
        ("I like tea.", [_REMEMBER]),
        ("Forget that.", [("memory", {"action": "forget", "ids": ["FACT"]})]),
    ],
    "plan": [("Remind me in nine days.", [_PLAN])],
    "plan, look, and cancel": [
        ("Remind me.", [_PLAN, ("schedule", {"action": "list"})]),
        ("Never mind.", [("schedule", {"action": "cancel", "id": "PLAN"}), _REMEMBER]),
    ],
    "message here": [("Tell me when half is done.", [("send_message", {"text": "Half."})])],
    "message to another chat of mine": [
        ("Tell my other chat.", [("send_message", {"text": "Hi.", "to": "SESSION"}), _REMEMBER]),
    ],
    "to-do list": [
        ("Make a list.", [("todo", {"items": [{"text": "tea"}]}), ("todo", {}), _REMEMBER]),
    ],
    "the time, and a plan": [("In an hour.", [("now", {}), _PLAN])],
    "write a file and send it": [
        ("Write a list and send it.", [_WRITE, ("send_file", {"path": "list.txt"})]),
    ],
    "edit a file, then remember": [
        (
            "Write a list; oat milk.",
            [_WRITE, ("edit_file", {"path": "list.txt", "old": "milk", "new": "oat"}), _REMEMBER],
        ),
    ],
    "the page that I name": [("Read PAGE for me.", [_READ])],
    "a page of the agent's choice": [("What is new about tea?", [_READ])],
    "two pages that I name": [
        ("Compare PAGE and <OTHER>.", [_READ, ("web_fetch", {"url": "OTHER"})])
    ],
    "a page, and its first page": [("See PAGE.", [_READ, ("web_fetch", {"url": "ROOT"})])],
    "search, read what was found, search again": [
        ("Look for tea.", [_FIND, _READ, ("web_search", {"query": "tea and milk"})]),
    ],
    "a command": [("Count the files.", [("terminal", {"command": "ls | wc -l"})])],
    "a file, and a command": [
        ("Sum up.", [_WRITE, ("read_file", {"path": "list.txt"}), ("terminal", {"command": "ls"})]),
    ],
    "a file, and another one": [
        ("Copy it.", [_WRITE, ("read_file", {"path": "list.txt"}), _WRITE]),
    ],
    "begin something in the background, then remember": [
        ("Start it.", [("terminal", {"command": "true", "background": True}), _REMEMBER]),
    ],
    "a task that reads nothing": [
        ("Have it counted.", [("delegate_task", {"goal": "count to three"}), _REMEMBER]),
    ],
    "a slip, then remember": [
        ("Tea.", [("memory", {"action": "add", "wrong": 1}), ("memroy", {}), _REMEMBER]),
    ],
    "a question to me, then remember": [
        ("Tea?", [("clarify", {"question": "Green or black?"}), _REMEMBER]),
    ],
    "after a page, a new conversation": [
        ("Read PAGE.", [_READ]),
        ("/new", []),
        ("Remember tea.", [_REMEMBER, _PLAN]),
    ],
    "after a page that was undone": [
        ("Read PAGE.", [_READ]),
        ("/undo", []),
        ("Remember tea.", [_REMEMBER]),
    ],
    "a summary of our own words": [
        *[("Tea is a drink that I like.", [])] * 4,
        ("/compact", []),
        ("Remember tea.", [_REMEMBER]),
    ],
}
