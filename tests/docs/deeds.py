"""What the model does in the examples of what the agent can do: it uses real tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.servers.scripted_reply import Reply

__all__ = ["answer_deeds"]

_SEA = "Grey waves come and go,\nthe gull asks what they carry.\nNothing, says the sea.\n"
_REACH = (
    "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80), 5)\" 2>&1 "
    "| sed -n 's/.*\\] //p'"
)
_NOTE = "Three lines: yesterday, today, what is in the way. No names."


def _printed(result: str) -> str:
    return str(json.loads(result)["output"]).strip()


def _found(result: str) -> str:
    told = json.loads(result)
    return f"It found: {told['result']} ({told['note']})"


def _noted(result: str) -> str:
    assert result == _NOTE
    return "Yesterday: the build. Today: the release. In the way: nothing."


def _deleted(result: str) -> str:
    return "It is gone." if result.startswith("{") else "I was not allowed to."


_Then = Callable[[str], str]
_DEEDS: dict[str, tuple[str, Mapping[str, Any], _Then]] = {
    "How many lines has notes.txt?": (
        "terminal",
        {"command": "wc -l < notes.txt"},
        lambda result: f"It has {_printed(result)} lines.",
    ),
    "Write a haiku about the sea into sea.txt.": (
        "write_file",
        {"path": "sea.txt", "content": _SEA},
        lambda _: "It is in sea.txt.",
    ),
    "Build it in the background, and tell me when it is done.": (
        "terminal",
        {"command": "sleep 1; echo built", "background": True, "notify_on_complete": True},
        lambda result: (
            "It runs; you will hear from me." if '"notify_on_complete": true' in result else result
        ),
    ),
    "Let another agent count the words of notes.txt in the background.": (
        "delegate_task",
        {"goal": "Count the words of notes.txt.", "background": True},
        _found,
    ),
    "Count the words of notes.txt.": (
        "terminal",
        {"command": "wc -w < notes.txt"},
        lambda result: f"There are {_printed(result)} words.",
    ),
    "Remind me of the stand-up at nine on weekdays.": (
        "schedule",
        {"action": "add", "text": "Write to them.", "cron": "0 9 * * 1-5", "timezone": "UTC"},
        lambda result: "I will." if result.startswith("Planned") else result,
    ),
    "Write my stand-up note.": ("read_skill", {"name": "standup"}, _noted),
    "Which files of Parley can you see?": (
        "terminal",
        {"command": "ls ../config.yaml 2>&1"},
        lambda result: f"None: {_printed(result)}",
    ),
    "Can you reach the network?": (
        "terminal",
        {"command": _REACH},
        lambda result: f"No: {_printed(result)}",
    ),
    "Delete old.txt.": ("terminal", {"command": "rm old.txt"}, _deleted),
    "Read http://169.254.169.254/.": (
        "web_fetch",
        {"url": "http://169.254.169.254/"},
        lambda result: result,
    ),
}


def answer_deeds(asked: Mapping[str, Any]) -> Reply | None:
    """The reply in a conversation whose last words of a person are known here."""
    said = [message for message in asked["messages"] if message["role"] == "user"]
    words = said[-1]["content"] if said else ""
    if not isinstance(words, str):
        return None
    if words.startswith("[Background process"):
        assert "finished with exit code 0" in words
        return Reply("The build is done.")
    if words not in _DEEDS:
        return None
    tool, arguments, then = _DEEDS[words]
    last = asked["messages"][-1]
    if last["role"] == "tool":
        return Reply(then(last["content"]))
    return Reply(tool_calls=((tool, arguments),))
