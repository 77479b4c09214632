"""All commands by name, and how one is told from other text."""

from __future__ import annotations

import difflib
import re
from typing import Final

from parley.gateway.commands import (
    chats,
    consent,
    conversation,
    forgetting,
    info,
    memory,
    person,
    work,
)
from parley.gateway.commands.base import Command, CommandCall, Reply
from parley.gateway.commands.near_miss import near_miss

__all__ = ["COMMANDS", "looks_like_command", "read_command", "unknown"]

_SHAPE: Final = re.compile(r"([/!])([a-zA-Z][\w-]*)(?:\s+(.*))?\s*\Z", re.DOTALL)
_SAME: Final = {"yes": "approve", "no": "deny"}
_MOST_WORDS: Final = 3


async def _help(call: CommandCall) -> Reply:
    lines: list[str] = []
    for title, commands in _GROUPS.items():
        lines += ["", f"**{title}**", ""]
        lines += [_help_line(call.verb, command) for command in commands]
    return Reply("\n".join(lines[1:]))


def _help_line(verb: str, command: Command) -> str:
    argument = f" {command.argument}" if command.argument else ""
    return f"- `{verb}{command.name}{argument}` {command.summary}"


_GROUPS: Final[dict[str, tuple[Command, ...]]] = {
    "Chats": (
        Command("start", "a greeting, and a first chat", chats.start),
        Command("new", "start a new chat", chats.new, "[NAME]"),
        Command("chats", "list your chats", chats.chats, "[all]"),
        Command("chat", "go back to one of them", chats.chat, "C1"),
        Command("rename", "name a chat", chats.rename, "[C1] NAME"),
        Command("archive", "put a chat away", chats.archive, "[C1]"),
        Command("unarchive", "open it again", chats.unarchive, "[C1]"),
    ),
    "This conversation": (
        Command("stop", "stop the running answer", conversation.stop, "[all]"),
        Command(
            "retry", "take back the last answer and try again", conversation.retry, uses_chat=True
        ),
        Command(
            "undo", "take back the last question and its answer", conversation.undo, uses_chat=True
        ),
        Command("reset", "begin afresh in this place", conversation.reset, uses_chat=True),
        Command("title", "name this conversation", conversation.title, "[TITLE]", uses_chat=True),
        Command("sessions", "list earlier conversations here", conversation.sessions),
        Command("resume", "go back to one of them", conversation.resume, "NUMBER", uses_chat=True),
        Command("model", "see or choose who answers", info.model, "[PROVIDER [MODEL]]"),
        Command("work", "what runs in the background here", work.work, "[stop ID|all]"),
    ),
    "Your word": (
        Command(
            "approve",
            "allow what the running answer asks for; also `!yes`",
            consent.approve,
            "[once|session|always] [ID]",
        ),
        Command("deny", "refuse it; also `!no`", consent.deny, "[ID]"),
        Command("grants", "what you allowed for good", consent.grants, "[revoke NUMBER|all]"),
        Command("safety", "what you are asked about first", consent.safety, "[on|off NAME]"),
    ),
    "You": (
        Command("settings", "everything you have set", person.settings),
        Command("skills", "what the agent may do for you", person.skills, "[on|off NAME]"),
        Command(
            "connectors", "the services it may use for you", person.connectors, "[on|off NAME]"
        ),
        Command(
            "soul", "how it is to be towards you", person.soul, "[name NAME|instructions …|clear]"
        ),
    ),
    "Memory": (
        Command(
            "memory",
            "what is remembered of you here",
            memory.memory,
            "[search|why|add|edit|log|show|undo …]",
        ),
        Command(
            "forget",
            "remove it for good; `words ID` blanks the messages too",
            forgetting.forget,
            "ID|WORDS|everything",
        ),
        Command(
            "compact", "fold this conversation into a summary now", memory.compact, uses_chat=True
        ),
    ),
    "More": (
        Command("status", "what is going on, and what is left of your plan", info.status),
        Command("usage", "tokens used in this conversation", info.usage),
        Command("help", "this list", _help),
    ),
}

COMMANDS: Final[dict[str, Command]] = {
    command.name: command for commands in _GROUPS.values() for command in commands
}

_NAMES: Final = (*COMMANDS, *_SAME)


def looks_like_command(text: str) -> bool:
    """`/word …`, and not a path such as `/etc/hosts`; `!word …` where there is such a command, or
    one that was mistyped.
    """
    return bool(read_command(text)[0])


def read_command(text: str) -> tuple[str, str]:
    """The command's name and what follows it; "" when it is none."""
    shape = _SHAPE.match(text.strip())
    if shape is None:
        return "", ""
    name = _SAME.get(shape[2].lower(), shape[2].lower())
    said = (shape[3] or "").strip()
    if shape[1] == "!" and name not in COMMANDS and not _is_slip(name, said):
        return "", ""
    return name, said


def _is_slip(name: str, said: str) -> bool:
    """Whether a command was mistyped. Who writes a sentence after a `!` means no command."""
    return len(said.split()) <= _MOST_WORDS and near_miss(name, _NAMES) is not None


def unknown(name: str, verb: str) -> str:
    near = near_miss(name, _NAMES) or next(iter(difflib.get_close_matches(name, _NAMES, n=1)), None)
    meant = f" Did you mean `{verb}{near}`?" if near else ""
    return f"There is no command `{verb}{name}`.{meant} `{verb}help` lists them."
