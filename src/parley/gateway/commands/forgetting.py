"""The command that removes what is remembered of a person, for good."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from parley.gateway.commands.base import CommandCall, Reply, count
from parley.gateway.commands.memory import NOTHING, Here, fact_lines, here, number
from parley.storage.memory import Fact, Forgotten

__all__ = ["forget"]

_FOUND: Final = 10
_ID: Final = re.compile(r"#?[0-9]+\Z")
_WORD: Final = re.compile(r"\w+")


async def forget(call: CommandCall) -> Reply:
    """By its number or by words for it; what is forgotten is not said again in the answer."""
    at = here(call)
    wanted = call.argument.replace(",", " ").split()
    with_words = wanted[:1] != [] and wanted[0].lower() == "words"
    if with_words:
        del wanted[0]
    if not wanted:
        return Reply(_usage(call))
    if all(map(_ID.match, wanted)):
        ids = dict.fromkeys(number(call, each) for each in wanted)
        return await _forget(call, at, tuple(ids), with_words)
    match [each.lower() for each in wanted]:
        case ["everything"]:
            return await _ask_for_everything(call, at, with_words)
        case ["everything", "yes"]:
            every = [fact.id for fact in await at.desk.all_there_ever_was(at.whose)]
            return await _forget(call, at, every, with_words)
    if with_words:
        return Reply(_usage(call))
    return await _by_words(call, at, " ".join(wanted))


async def _by_words(call: CommandCall, at: Here, words: str) -> Reply:
    found = await at.desk.search(words, at.whose, limit=_FOUND)
    meant = [fact for fact in found if _holds(fact, words)]
    if len(meant) == 1 or not found:
        return await _forget(call, at, [fact.id for fact in meant], with_words=False)
    verb = f"{call.verb}forget"
    which = f"Which one? `{verb} ID` removes it, `{verb} words ID` blanks its messages too."
    return Reply("\n".join([*fact_lines(found), "", which]))


async def _forget(call: CommandCall, at: Here, ids: Sequence[int], with_words: bool) -> Reply:
    """Also of nothing: then it may have been done already, and the answer to it was lost."""
    gone = await at.desk.forget(
        ids, at.whose, by=call.person, words=with_words, dedupe=f"cmd:{call.id}"
    )
    return Reply(_told(call, gone, with_words))


async def _ask_for_everything(call: CommandCall, at: Here, with_words: bool) -> Reply:
    ever = await at.desk.all_there_ever_was(at.whose)
    if not ever:
        return Reply(NOTHING)
    found = sum(fact.state == "current" for fact in ever)
    all_of = f"all {found:,} things" if found > 1 else "the one thing"
    what = f"{all_of} I remember of you here" if found else "what is no longer so of you here"
    again = f"`{call.verb}forget {'words ' if with_words else ''}everything yes`"
    return Reply(f"That removes {what}, for good: {again} does it.")


def _told(call: CommandCall, gone: Forgotten, with_words: bool) -> str:
    each = (kind if many == 1 else f"{many} × {kind}" for kind, many in sorted(gone.kinds.items()))
    kinds = ", ".join(each)
    things = count(sum(gone.kinds.values()) or len(gone.facts), "thing")
    told = f"Forgotten for good: {things} ({kinds or 'no longer so'})."
    if not with_words:
        return (
            f"{told} Messages that said so are still in the conversation: another time, "
            f"`{call.verb}forget words ID` blanks those too."
        )
    if not gone.messages:
        return f"{told} There were no messages to blank."
    them = "it" if gone.messages == 1 else "them"
    return (
        f"{told} {count(gone.messages, 'message')} blanked in what I keep; your chat program may "
        f"still show {them}."
    )


def _usage(call: CommandCall) -> str:
    verb = f"{call.verb}forget"
    return (
        f"`{verb} ID` or `{verb} WORDS` removes what I remember, `{verb} words ID` blanks the "
        f"messages it came from too, and `{verb} everything` is all of it; `{call.verb}memory` "
        "lists it."
    )


def _holds(fact: Fact, words: str) -> bool:
    """Each of the words, or one that begins so: less than that may be about something else."""
    held, asked = (_WORD.findall(text.casefold()) for text in (fact.text, words))
    return bool(asked) and all(any(each.startswith(word) for each in held) for word in asked)
