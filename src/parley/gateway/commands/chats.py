"""Commands about a person's chats: start, new, chats, chat, rename, archive, unarchive.

Where the surface has rooms, a chat is a room; elsewhere it is a session of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from functools import partial
from typing import Final

from parley.gateway.chats import hello_text
from parley.gateway.commands.base import CommandCall, Reply
from parley.gateway.commands.conversation import LONGEST_TITLE, afresh
from parley.gateway.failures import NotNow
from parley.storage.contract import (
    NewSession,
    Nothing,
    Outcome,
    ResumeSession,
    SessionRecord,
    SetTitle,
    StopTurn,
)
from parley.storage.people import Chat

__all__ = ["archive", "chat", "chats", "new", "rename", "start", "unarchive"]

_LISTED: Final = 20
_LISTED_OF_ALL: Final = 100
_MOST: Final = 10_000
_LABEL: Final = re.compile(r"[cC]?([1-9][0-9]{0,8})\Z")


async def start(call: CommandCall) -> Reply:
    """A first chat, where chats are rooms; a greeting everywhere."""
    rooms = await call.reach.chats.rooms(call.source)
    hello = await _hello(call)
    if rooms is None or (rooms.first_in_place and call.source.chat_type == "dm"):
        return Reply(hello)
    found = await call.reach.chats.first(rooms, call.source, partial(_first_words, call, hello))
    if found.lane == call.lane:
        return Reply(f"You are in {_told(found)}: write here whenever you like.\n\n{hello}")
    return Reply(f"{hello}\n\nYour chat is {_told_where(found)}")


async def new(call: CommandCall) -> Reply:
    name = _as_name(call.argument)
    if len(name) > LONGEST_TITLE:
        return Reply(f"A name has at most {LONGEST_TITLE} characters.")
    rooms = await call.reach.chats.rooms(call.source)
    if rooms is None:
        return afresh(call, name or None)
    found = await call.reach.chats.begin(
        rooms,
        call.source,
        partial(_first_words, call, ""),
        key=f"command:{call.id}",
        name=name or None,
    )
    return Reply(f"A new chat: {_told_where(found)}")


async def chats(call: CommandCall) -> Reply:
    everything = call.argument.lower() == "all"
    rooms = await call.reach.chats.rooms(call.source)
    if rooms is None:
        pairs = [each for each in await _of_lane(call) if everything or not each[0].archived]
        shown = pairs[-(_LISTED_OF_ALL if everything else _LISTED) :]
        lines = [_session_line(*each) for each in shown]
        if len(shown) < len(pairs):
            lines.insert(
                0, f"- {len(pairs) - len(shown)} older ones, from **{pairs[0][0].label}** on"
            )
        more = (
            f"`{call.verb}chat C1` goes back to one; `{call.verb}chats all` lists archived and "
            "older ones."
        )
    else:
        known = await call.store.chats(call.person)
        found = [each for each in known if everything or not each.archived]
        lines = [_room_line(each, here=each.lane == call.lane) for each in found[-_LISTED_OF_ALL:]]
        more = f"`{call.verb}new [NAME]` opens another."
        if len(found) < len(known):
            more += f" `{call.verb}chats all` lists archived ones."
    return Reply("\n".join([*lines, "", more]) if lines else f"You have no chats yet. {more}")


async def chat(call: CommandCall) -> Reply:
    """Go back to a chat; where it is a room, tell where that is."""
    if not call.argument:
        return Reply(f"Which one? `{call.verb}chats` lists them; then `{call.verb}chat C1`.")
    if await call.reach.chats.rooms(call.source) is not None:
        found = _numbered(await call.store.chats(call.person), call.argument)
        return Reply(_unknown(call) if found is None else _told_where(found))
    pair = await _in_lane(call, call.argument)
    if pair is None:
        return Reply(_unknown(call))
    one, record = pair
    if one.archived:
        return Reply(f"{one.label} is archived; `{call.verb}unarchive {one.label}` opens it again.")

    def text(outcome: Outcome) -> str:
        return f"{one.label} is there no more." if outcome.refused else f"Back in {_told(one)}."

    return Reply(text, ResumeSession(record.id, said=call.said))


async def rename(call: CommandCall) -> Reply:
    """The display only: whoever answers knows the chat by its number."""
    label, name = _split(call.argument)
    name = _as_name(name)
    if not name or len(name) > LONGEST_TITLE:
        return Reply(
            f"`{call.verb}rename NAME` names this chat, `{call.verb}rename C2 NAME` another; "
            f"a name has at most {LONGEST_TITLE} characters."
        )
    rooms = await call.reach.chats.rooms(call.source)
    if rooms is not None:
        found = await _room(call, label)
        if found is None:
            return Reply(_which(call, "rename", label))
        return await _follow(
            call,
            call.reach.chats.rename(rooms, found, name),
            f"{found.label} is now **{name}**.",
        )
    pair = await _in_lane(call, label)
    if pair is None:
        return Reply(_unknown(call))
    await call.reach.chats.rename(None, pair[0], name)
    effect = SetTitle(name) if pair[1].id == call.session.id else Nothing()
    return Reply(f"{pair[0].label} is now **{name}**.", effect)


async def archive(call: CommandCall) -> Reply:
    """No more use of it; what was said stays."""
    reach, label = call.reach, call.argument
    rooms = await reach.chats.rooms(call.source)
    again = f"`{call.verb}unarchive%s` opens it again."
    if rooms is None:
        pair = await _in_lane(call, label)
        if pair is None:
            return Reply(_unknown(call))
        one, record = pair
        await reach.chats.archive(None, one, archived=True)
        text = f"{_told(one)} is archived; {again % f' {one.label}'}"
        if record.id != call.session.id:
            return Reply(text)
        return Reply(f"{text} A new conversation begins here.", NewSession(said=call.said))
    found = await _room(call, label)
    if found is None or found.source is None or found.lane is None:
        return Reply(_which(call, "archive", label))
    here = found.lane == call.lane
    text = f"{_told(found)} is archived; {again % ('' if here else f' {found.label}')}"
    reply = await _follow(call, reach.chats.archive(rooms, found, archived=True), text)
    if here:
        return Reply(reply.text, StopTurn(drop_queued=True, said=call.said))
    await reach.lanes.stop(found.lane, drop_queued=True)
    return reply


async def unarchive(call: CommandCall) -> Reply:
    reach, label = call.reach, call.argument
    rooms = await reach.chats.rooms(call.source)
    if rooms is None:
        pair = await _in_lane(call, label) if label else None
        if pair is None:
            return Reply(f"Which one? `{call.verb}chats all` lists them.")
        await reach.chats.archive(None, pair[0], archived=False)
        back = f"`{call.verb}chat {pair[0].label}` goes back to it."
        return Reply(f"{_told(pair[0])} is open again; {back}")
    found = await _room(call, label)
    if found is None or found.source is None:
        return Reply(_which(call, "unarchive", label))
    change = reach.chats.archive(rooms, found, archived=False)
    return await _follow(call, change, f"{_told(found)} is open again.")


async def _follow(call: CommandCall, change: Awaitable[None], text: str) -> Reply:
    """What was changed is stored; a platform that does not show it is told of."""
    try:
        await change
    except NotNow as error:
        if call.insists:
            raise
        return Reply(f"{text} The room does not show it: {call.error_text(error)}")
    return Reply(text)


# ── which one ──


async def _room(call: CommandCall, label: str) -> Chat | None:
    """One of this person's own chats: the one named, or the one that this room is."""
    if label:
        return _numbered(await call.store.chats(call.person), label)
    here = await call.store.chat_at(call.lane)
    if here is None and call.source.chat_type == "dm" and call.source.thread_id is None:
        here = await call.reach.chats.adopt(call.source, call.lane, call.session.id)
    return here if here is not None and here.person == call.person else None


async def _of_lane(call: CommandCall) -> list[tuple[Chat, SessionRecord]]:
    """The sessions of this conversation as chats, the oldest first, each with its number."""
    records = await call.store.sessions(lane=call.lane, limit=_MOST)
    used = [each for each in records if each.turns or each.title or each.current]
    used.sort(key=lambda each: each.created_at)
    known = {each.session: each for each in await call.store.chats(call.person)}
    for each in used:
        if each.id not in known:
            known[each.id] = await call.store.chat_of_session(call.person, each.id)
    return [(known[each.id], each) for each in used]


async def _in_lane(call: CommandCall, label: str) -> tuple[Chat, SessionRecord] | None:
    """The one named, or the one that goes on; only ever of this same conversation."""
    if not label:
        one = await call.store.chat_of_session(call.person, call.session.id)
        return one, call.session
    pairs = await _of_lane(call)
    found = _numbered([each for each, _ in pairs], label)
    return next((pair for pair in pairs if pair[0] is found), None)


def _numbered(found: list[Chat], label: str) -> Chat | None:
    shape = _LABEL.match(label.strip())
    number = int(shape[1]) if shape is not None else 0
    return next((each for each in found if each.number == number), None)


def _split(argument: str) -> tuple[str, str]:
    """`C2 Tea` is the name `Tea` for C2; `2 cups of tea` is a name."""
    first, _, rest = argument.partition(" ")
    is_label = first[:1] in ("c", "C") and _LABEL.match(first) is not None
    return (first, rest.strip()) if is_label and rest.strip() else ("", argument)


# ── in words ──


async def _hello(call: CommandCall) -> str:
    soul = (await call.reach.people.settings_of(call.person)).soul
    return hello_text(call.source, verb=call.verb, name=soul.name)


def _first_words(call: CommandCall, hello: str, chat: Chat) -> str:
    if hello:
        return f"{hello}\n\nThis is {_told(chat)}, your own chat with me."
    return f"This is {_told(chat)}. Write here whenever you like; `{call.verb}help` says more."


def _told(chat: Chat) -> str:
    return f"**{chat.label}** {chat.name}" if chat.name else f"**{chat.label}**"


def _told_where(chat: Chat) -> str:
    """As the end of a sentence; a dot behind an address would be read as a part of it."""
    place = _place(chat)
    return f"{_told(chat)}: {place}" if place else f"{_told(chat)}."


def _place(chat: Chat) -> str:
    source = chat.source
    if source is None:
        return "its room is being made" if chat.lane is None else "no room of its own"
    if source.platform == "matrix":
        # A newer room's id does not say which server knows it; the person's does.
        server = (source.user_id or "").partition(":")[2]
        via = f"?via={server}" if server and ":" not in source.chat_id else ""
        return f"https://matrix.to/#/{source.chat_id}{via}"
    return f"the room {source.chat_name}" if source.chat_name else ""


def _room_line(chat: Chat, *, here: bool) -> str:
    return _line(chat, chat.name, _place(chat), here=here)


def _session_line(chat: Chat, record: SessionRecord) -> str:
    return _line(chat, chat.name or record.title, "", here=record.current)


def _line(chat: Chat, name: str | None, where: str, *, here: bool) -> str:
    parts = [f"**{chat.label}**", name, "archived" if chat.archived else "", where]
    return "- " + " · ".join(part for part in parts if part) + (" ← here" if here else "")


def _unknown(call: CommandCall) -> str:
    return f"There is no such chat here; `{call.verb}chats` lists them."


def _which(call: CommandCall, verb: str, label: str) -> str:
    if label:
        return f"You have no room of that number; `{call.verb}chats` lists your chats."
    name = " NAME" if verb == "rename" else ""
    return f"This is no chat of yours; name one: `{call.verb}{verb} C1{name}`."


def _as_name(text: str) -> str:
    return " ".join(text.split())
