"""Commands about what is remembered of a person: memory, and compact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from parley.agent.foreign import in_code
from parley.gateway.commands.base import CommandCall, MemoryReach, Reply, count
from parley.memory.desk import MemoryDesk, Whose, diff_of
from parley.protocol import ParleyError
from parley.storage.memory import Commit, Fact, Line

__all__ = [
    "NOTHING",
    "Here",
    "compact",
    "fact_lines",
    "here",
    "memory",
    "number",
    "remembered_line",
]

NOTHING: Final = "Nothing is remembered of you here."

_LISTED: Final = 30
_FOUND: Final = 10
_LOGGED: Final = 10
_LONGEST_LINE: Final = 300
_LONGEST_DIFF: Final = 6_000
_MOST_DIGITS: Final = 18  # more is no id, and no number that a database takes


@dataclass(frozen=True, slots=True)
class Here:
    """What is remembered where a command was used, of whoever used it."""

    desk: MemoryDesk
    place: str
    whose: Whose

    @property
    def is_shared(self) -> bool:
        """Others read along: of what is remembered there, each sees what they said themselves."""
        return self.whose.person is not None


def here(call: CommandCall) -> Here:
    places = _reach(call).places(call.lane, call.source)
    if not places.write:
        raise ParleyError("Nothing is remembered in this chat.")
    person = None if places.is_private else call.person
    return Here(_reach(call).desk, places.write, Whose((places.write,), person))


async def memory(call: CommandCall) -> Reply:
    """What is remembered of this person here, and how it came to be."""
    word, rest = _first(call.argument)
    at = here(call)
    match word.lower(), rest:
        case "", _:
            return await _list(call, at)
        case "search", rest if rest:
            return await _search(call, at, rest)
        case "why", rest if rest:
            return await _why(call, at, number(call, rest))
        case "add", rest if rest:
            return await _add(call, at, rest)
        case "edit", rest if _first(rest)[1]:
            which, text = _first(rest)
            return await _edit(call, at, number(call, which), text)
        case "log", _:
            return await _log(call, at)
        case "show", rest if rest:
            return await _show(call, at, number(call, rest))
        case "undo", rest if rest:
            return await _undo(call, at, number(call, rest))
    verb = f"{call.verb}memory"
    return Reply(
        f"`{verb}` lists what I remember of you here; `{verb} search WORDS`, `{verb} why ID`, "
        f"`{verb} add WORDS`, `{verb} edit ID WORDS`, `{verb} log`, `{verb} show N` and "
        f"`{verb} undo N` do more."
    )


async def compact(call: CommandCall) -> Reply:
    """Fold this conversation now, in the background."""
    reach = _reach(call)
    seen = await call.store.tended(call.session.id)
    if seen is None or seen.last < max(seen.seen.folded, 1):
        return Reply("There is nothing to fold in this conversation.")
    name = f"command:{call.id}:compact"
    if not reach.compact(call.lane, call.session.id, call.source, name):
        return Reply("This conversation is being folded already.")
    surface = call.reach.deliveries.surface(call.source)
    when = "As soon as this answer is done I fold" if call.running else "I am folding"
    tells = surface is not None and surface.supports_async_delivery and call.later
    then = ", and say here when it is done" if tells else "; later answers start from it"
    return Reply(f"{when} this conversation into a summary{then}.")


async def remembered_line(call: CommandCall) -> str | None:
    """For `/status`; None where nothing is."""
    if call.reach.memory is None or not call.reach.memory.places(call.lane, call.source).write:
        return None
    at = here(call)
    found = len(await at.desk.listing(at.whose))
    things = count(found, "thing")
    return f"{things} remembered of you here: `{call.verb}memory`" if found else None


# ── what is remembered ──


async def _list(call: CommandCall, at: Here) -> Reply:
    found = await at.desk.listing(at.whose)
    verb = call.verb
    if not found:
        how = f"`{verb}memory add WORDS` has me remember something."
        return Reply(" ".join([NOTHING, how, *_stays(at)]))
    newest = sorted(found, key=lambda fact: (fact.confidence, fact.at, fact.id), reverse=True)
    shown = newest[:_LISTED]
    lines: list[str] = []
    for kind in dict.fromkeys(fact.kind for fact in shown):
        lines += [f"**{kind.capitalize()}**", ""]
        lines += [*fact_lines([fact for fact in shown if fact.kind == kind]), ""]
    if len(found) > len(shown):
        more = len(found) - len(shown)
        lines += [f"And {more:,} more: `{verb}memory search WORDS` finds them.", ""]
    ways = f"`{verb}memory why ID` tells where one is from; `{verb}forget ID` removes it for good."
    lines.append(" ".join([ways, *_stays(at)]))
    return Reply("\n".join(lines))


async def _search(call: CommandCall, at: Here, words: str) -> Reply:
    found = await at.desk.search(words, at.whose, limit=_FOUND)
    if not found:
        return Reply(f"Nothing like that is remembered of you here; `{call.verb}memory` lists it.")
    return Reply("\n".join(fact_lines(found)))


async def _why(call: CommandCall, at: Here, id: int) -> Reply:
    why = await at.desk.why(id, at.whose)
    lines = fact_lines([why.fact])
    if why.fact.state != "current":
        lines.append("- this is no longer so")
    lines += [f"- before that: {_short(each.text)} ({_day(each.said_at)})" for each in why.versions]
    lines += [""]
    if why.fact.outside:
        lines.append(f"It may come from what I had read: {in_code(_short(why.fact.outside))}.")
    lines += _said(why.fact, why.sources)
    if why.sources:
        verb = f"{call.verb}forget"
        lines += ["", f"`{verb} words {id}` removes it and blanks these messages."]
    return Reply("\n".join(lines))


async def _add(call: CommandCall, at: Here, text: str) -> Reply:
    fact = await at.desk.add(
        at.place,
        text,
        kind="note",
        by=call.person,
        person=call.person,
        origin="command",
        dedupe=_once(call),
    )
    only = ", for this chat only" if at.is_shared else ""
    return Reply(f"Remembered as {fact.id}{only}; `{call.verb}forget {fact.id}` removes it.")


async def _edit(call: CommandCall, at: Here, id: int, text: str) -> Reply:
    fact = await at.desk.change(
        id, text, at.whose, by=call.person, origin="command", dedupe=_once(call)
    )
    return Reply(f"{fact.id} is now as you say; `{call.verb}memory log` lists what was changed.")


# ── how it came to be ──


async def _log(call: CommandCall, at: Here) -> Reply:
    found = await at.desk.log(at.whose, limit=_LOGGED)
    if not found:
        return Reply("Nothing has changed in what is remembered of you here.")
    verb = f"{call.verb}memory"
    ways = f"`{verb} show N` tells what one changed; `{verb} undo N` takes it back."
    return Reply("\n".join([*map(_commit_line, found), "", ways]))


async def _show(call: CommandCall, at: Here, id: int) -> Reply:
    commit = await at.desk.commit(id, at.whose)
    changed = diff_of(commit).replace("```", "'''").strip()
    if len(changed) > _LONGEST_DIFF:
        left = len(changed) - _LONGEST_DIFF
        changed = f"{changed[:_LONGEST_DIFF]}\n… {left:,} more characters: `parley memory log {id}`"
    lines = [_commit_line(commit)]
    if changed:
        lines += ["", "```diff", changed, "```"]
    return Reply("\n".join(lines))


async def _undo(call: CommandCall, at: Here, id: int) -> Reply:
    commit = await at.desk.commit(id, at.whose)
    if commit.undone_by is None:
        await at.desk.undo(id, at.whose, by=call.person)
    return Reply(f"Change {id} is taken back; what was changed again since is as it was.")


# ── words ──


def number(call: CommandCall, word: str) -> int:
    """What a person wrote as an id, with or without `#`."""
    digits = word.removeprefix("#")
    if not digits.isdecimal():
        raise ParleyError(f"`{call.verb}memory` and `{call.verb}memory log` tell the numbers.")
    return int(digits) if len(digits) <= _MOST_DIGITS else 0


def fact_lines(facts: Sequence[Fact]) -> list[str]:
    return [f"- {fact.id}: {_short(fact.text)} ({_day(fact.said_at)})" for fact in facts]


def _said(fact: Fact, said: Sequence[Line]) -> list[str]:
    """Where it comes from: their messages, or else who wrote it."""
    if said:
        return [f"- {_time(line.at)}: “{_short(line.message.text)}”" for line in said]
    if fact.origin in ("command", "tool"):
        return [f"You had me remember it on {_day(fact.said_at)}."]
    if fact.origin in ("hand", "import"):
        return [f"It was written by hand on {_day(fact.said_at)}."]
    return ["The messages it came from are not there any more."]


def _commit_line(commit: Commit) -> str:
    parts = [f"{commit.added} added" if commit.added else ""]
    parts += [f"{commit.removed} removed" if commit.removed else ""]
    parts += ["taken back" if commit.undone_by is not None else ""]
    told = ", ".join(part for part in (commit.kind, *parts) if part)
    return f"- {commit.id}: {_time(commit.at)}, {told}"


def _stays(at: Here) -> list[str]:
    return ["What is said in this chat stays in it."] if at.is_shared else []


def _reach(call: CommandCall) -> MemoryReach:
    if call.reach.memory is None:
        raise ParleyError(
            "Nothing is remembered here by Parley: memory is off, or whoever answers has their own."
        )
    return call.reach.memory


def _once(call: CommandCall) -> str:
    return f"cmd:{call.id}"


def _first(text: str) -> tuple[str, str]:
    word, *rest = text.split(maxsplit=1) or [""]
    return word, rest[0].strip() if rest else ""


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M UTC}"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST_LINE else flat[: _LONGEST_LINE - 1] + "…"
