"""Commands that steer a conversation: what is said in it, and which session goes on."""

from __future__ import annotations

from datetime import UTC, datetime

from parley.gateway.commands.base import CommandCall, Reply, count
from parley.storage.contract import (
    NewSession,
    Outcome,
    ResumeSession,
    RetryTurn,
    SessionRecord,
    SetTitle,
    StopTurn,
    UndoTurn,
)
from parley.storage.people import Chat

__all__ = [
    "LONGEST_TITLE",
    "afresh",
    "reset",
    "resume",
    "retry",
    "sessions",
    "stop",
    "title",
    "undo",
]

_LISTED = 10
_MOST = 10_000
_SHORTEST_ID = 4  # shorter ones are numbers that are not in the list, or slips
LONGEST_TITLE = 120


async def reset(call: CommandCall) -> Reply:
    """A fresh session in the same place."""
    return afresh(call, None)


def afresh(call: CommandCall, name: str | None) -> Reply:
    text = f"A new conversation: **{name}**." if name else "A new conversation."
    return Reply(
        f"{text} The last one is kept; `{call.verb}sessions` lists them.",
        NewSession(said=call.said, title=name),
    )


async def stop(call: CommandCall) -> Reply:
    everything = call.argument == "all"

    def text(outcome: Outcome) -> str:
        words = "Stopped." if outcome.stopped is not None else "Nothing is running."
        if outcome.dropped:
            words += f" {outcome.dropped} waiting message(s) dropped."
        return words

    return Reply(text, StopTurn(drop_queued=everything, said=call.said))


async def retry(call: CommandCall) -> Reply:
    def text(outcome: Outcome) -> str:
        return "Trying again." if outcome.undone else "There is nothing to try again."

    return Reply(text, RetryTurn(said=call.said))


async def undo(call: CommandCall) -> Reply:
    def text(outcome: Outcome) -> str:
        if not outcome.undone:
            return "There is nothing to undo."
        words = " · ".join(outcome.undone)
        return f"Taken back: “{_shorten(words, 80)}”"

    return Reply(text, UndoTurn(said=call.said))


async def title(call: CommandCall) -> Reply:
    if not call.argument:
        named = call.session.title
        return Reply(f"This conversation is called **{named}**." if named else "It has no title.")
    if len(call.argument) > LONGEST_TITLE:
        return Reply(f"A title has at most {LONGEST_TITLE} characters.")
    if not call.reach.chats.has_rooms(call.source.platform):
        chat = await call.store.chat_of_session(call.person, call.session.id)
        await call.reach.chats.rename(None, chat, call.argument)
    return Reply(f"This conversation is now **{call.argument}**.", SetTitle(call.argument))


async def sessions(call: CommandCall) -> Reply:
    found = await call.store.sessions(lane=call.lane, limit=_LISTED)
    put_away = await _archived(call)
    lines = [
        _line(number, record) + (" · archived" if record.id in put_away else "")
        for number, record in enumerate(found, start=1)
    ]
    return Reply("\n".join([*lines, "", f"`{call.verb}resume NUMBER` goes back to one."]))


async def resume(call: CommandCall) -> Reply:
    wanted = call.argument
    if not wanted:
        return Reply(
            f"Which one? `{call.verb}sessions` lists them; then `{call.verb}resume NUMBER`."
        )
    record = await _find(call, wanted)
    if record is None:
        return Reply(
            f"There is no one conversation `{wanted}` here; `{call.verb}sessions` lists them."
        )
    put_away = (await _archived(call)).get(record.id)
    if put_away is not None:
        return Reply(
            f"{put_away.label} is archived; `{call.verb}unarchive {put_away.label}` opens it again."
        )

    def text(outcome: Outcome) -> str:
        if outcome.refused:
            return f"There is no conversation `{wanted}` here any more."
        return f"Back in {_name(record)}."

    return Reply(text, ResumeSession(record.id, said=call.said))


async def _archived(call: CommandCall) -> dict[str | None, Chat]:
    """The chats that this person put away, by session."""
    return {each.session: each for each in await call.store.chats(call.person) if each.archived}


async def _find(call: CommandCall, wanted: str) -> SessionRecord | None:
    """By its number in the list, its id, or its title; only ever of this same conversation."""
    found = await call.store.sessions(lane=call.lane, limit=_LISTED)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(found):
        return found[int(wanted) - 1]
    if len(wanted) >= _SHORTEST_ID:
        by_id = await call.store.find_sessions(wanted, lane=call.lane)
        if len(by_id) == 1:
            return by_id[0]
    everything = await call.store.sessions(lane=call.lane, limit=_MOST)
    named = (record for record in everything if (record.title or "").lower() == wanted.lower())
    return next(named, None)


def _line(number: int, record: SessionRecord) -> str:
    when = datetime.fromtimestamp(record.updated_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    here = " ← here" if record.current else ""
    return f"{number}. {_name(record)} · {count(record.turns, 'turn')} · {when}{here}"


def _name(record: SessionRecord) -> str:
    return f"**{record.title}** (`{record.id}`)" if record.title else f"`{record.id}`"


def _shorten(text: str, length: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
