"""Ask one thing, print the answer, end."""

from __future__ import annotations

import sys

from parley.cli._plain import plain
from parley.cli._shared import print_json
from parley.cli._talk import Talk
from parley.config.settings import Settings
from parley.profiles import Profile
from parley.surfaces.terminal.wire import Accepted, Deliver, Show

__all__ = ["ask_once"]


async def ask_once(
    profile: Profile, settings: Settings, *, chat: str, text: str, as_json: bool
) -> int:
    """The exit code: 0 when there was an answer, 1 when there was a fault."""
    async with Talk(profile, settings, chat=chat) as talk:
        asked = await talk.say(text)
        denied: set[str] = set()
        async for frame in talk.frames():
            match frame:
                case Accepted(id=number, state="refused" | "rate_limited" as state, why=why):
                    if number == asked:
                        return _print_fault(why or f"The message was not taken ({state}).", as_json)
                case Deliver(answers=answers) if asked in answers:
                    code = _print(frame, chat, as_json=as_json)
                    await talk.shown(frame)
                    return code
                case Show(event="asks", text=question):
                    # Nobody is there to be asked: whoever wants to allow it opens a chat.
                    sys.stderr.write(f"parley: refused: {plain(question)}\n")
                    denied.add(await talk.say("/deny"))
                case Deliver(answers=answers) if denied.intersection(answers):
                    await talk.shown(frame)
                case Deliver():
                    # An earlier reply that nobody was there for: said before the answer.
                    if not as_json:
                        sys.stderr.write(f"(earlier) {plain(frame.text)}\n")
                    await talk.shown(frame)
    return 1


def _print(reply: Deliver, chat: str, *, as_json: bool) -> int:
    failed = reply.kind == "error"
    if failed:
        return _print_fault(reply.text, as_json)
    if as_json:
        print_json({"reply": reply.text, "kind": reply.kind, "chat": chat, "turn": reply.turn})
    else:
        # A file or a pipe gets the words as they are; a terminal must not obey them.
        sys.stdout.write((plain(reply.text) if sys.stdout.isatty() else reply.text) + "\n")
    sys.stdout.flush()
    return 0


def _print_fault(sentence: str, as_json: bool) -> int:
    if as_json:
        print_json({"error": sentence})
    else:
        sys.stderr.write(f"parley: {plain(sentence)}\n")
    return 1
