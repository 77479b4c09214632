"""From what happens in rooms to messages for the agent: who may speak, what is meant for us."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from parley.config.surfaces import MatrixSettings
from parley.protocol import InboundMessage, SessionSource
from parley.surfaces.matrix.allowed import Allowed
from parley.surfaces.matrix.connection import Connection
from parley.surfaces.matrix.downloads import take_in
from parley.surfaces.matrix.incoming import (
    Edited,
    Reacted,
    Redacted,
    Said,
    Upgraded,
    understand,
)
from parley.surfaces.matrix.loop_guard import LoopGuard
from parley.surfaces.matrix.mentions import Me, Place, is_for_us, without_our_name
from parley.surfaces.matrix.quoted import Quotes
from parley.surfaces.matrix.rooms import Rooms

__all__ = ["Heard", "Hearing", "Replaced", "TakenBack"]

_log = logging.getLogger("parley.matrix")

_YES: Final = ("👍", "✅", "✔", "yes")
_NO: Final = ("👎", "❌", "✖", "no")
_MEGABYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Heard:
    """Something for the agent. `edits` is the message that it takes the place of."""

    room_id: str
    message: InboundMessage
    edits: str | None = None


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Someone has deleted a message of theirs."""

    source: SessionSource
    event_id: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """A room goes on elsewhere, someone says."""

    room_id: str
    by: str
    sender: str


class Hearing:
    """Decides what is for us; files that come with it are kept in `attachments`.

    `deleted` is told of messages of ours that someone has taken away, `stopped` of a sender in a
    room who is not answered any more.
    """

    def __init__(
        self,
        connection: Connection,
        rooms: Rooms,
        quotes: Quotes,
        *,
        allowed: Allowed,
        settings: MatrixSettings,
        attachments: Path,
        deleted: Callable[[str], None] = lambda _event_id: None,
        stopped: Callable[[str, str, str], None] = lambda _room_id, _sender, _event_id: None,
    ) -> None:
        self._connection = connection
        self._rooms = rooms
        self._quotes = quotes
        self._allowed = allowed
        self._settings = settings
        self._attachments = attachments
        self._deleted = deleted
        self._stopped = stopped
        self.guard = LoopGuard()

    async def hear(
        self, events: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[Heard | TakenBack | Replaced]:
        """In the order in which it happened; files are fetched side by side."""
        heard: list[Heard | TakenBack | Replaced] = []
        fetched: dict[int, Said] = {}
        for room_id, event in events:
            self._quotes.note(room_id, event)
            found = await self._understand(room_id, event)
            if isinstance(found, tuple):
                found, fetched[len(heard)] = found
            if found is not None:
                heard.append(found)
        whole = await asyncio.gather(*(self._with_files(said) for said in fetched.values()))
        for at, (text, attachments) in zip(fetched, whole, strict=True):
            plain = heard[at]
            assert isinstance(plain, Heard)
            message = replace(plain.message, text=text, attachments=attachments)
            heard[at] = replace(plain, message=message)
        return heard

    async def _understand(
        self, room_id: str, event: Mapping[str, Any]
    ) -> Heard | TakenBack | Replaced | tuple[Heard, Said] | None:
        found = understand(
            event,
            most_bytes=self._settings.file_mb * _MEGABYTE,
            name_of=lambda user: self._rooms.name_of(room_id, user) or user,
        )
        if isinstance(found, Upgraded):
            return Replaced(room_id, found.replacement, found.sender)
        if isinstance(found, Redacted):
            return await self._taken_back(room_id, found)
        if found is None or not self._may_speak(room_id, found):
            return None
        if isinstance(found, Reacted):
            return await self._answered(room_id, found)
        said = found.said if isinstance(found, Edited) else found
        if isinstance(found, Edited):
            before = await self._quotes.find(room_id, found.target)
            if before is None or before.sender != said.sender:
                return None  # nobody edits what another has said
            said = replace(said, thread_id=before.thread_id)
        return await self._said(
            room_id, said, edits=found.target if isinstance(found, Edited) else None
        )

    def _may_speak(self, room_id: str, found: Said | Edited | Reacted) -> bool:
        sender = found.said.sender if isinstance(found, Edited) else found.sender
        if sender == self._connection.user_id or not self._allowed.may_speak(sender):
            return False
        facts = self._rooms.facts(room_id)
        return facts is not None and not facts.is_space

    async def _said(
        self, room_id: str, said: Said, *, edits: str | None
    ) -> Heard | tuple[Heard, Said] | None:
        facts = self._rooms.facts(room_id)
        if facts is None:
            return None
        if facts.encrypted and not said.encrypted:
            # A homeserver could write this in anyone's name.
            _log.warning("plain_text_not_heard", extra={"room": room_id, "sender": said.sender})
            return None
        now = time.monotonic()
        if facts.is_crowded and not said.notice and not said.by_agent:
            self.guard.person_wrote(room_id, said.sender, now)
        me = self._me(room_id)
        quoted = await self._quotes.find(room_id, said.reply_to) if said.reply_to else None
        to_us = quoted is not None and quoted.sender == me.user_id
        if not is_for_us(
            said,
            room=Place(facts.members),
            me=me,
            groups=self._settings.groups,
            replied_to_us=to_us,
        ):
            return None
        verdict = self.guard.check(room_id, said.sender, now) if facts.is_crowded else "answer"
        if verdict == "stop":
            self._stopped(room_id, said.sender, said.event_id)
        if verdict != "answer":
            return None
        await self._rooms.settle(room_id, said.sender)
        text, outside = without_our_name(said, me), ""
        if quoted is not None and not to_us and quoted.text and not text.startswith(("!", "/")):
            # What they point at was perhaps never said to us.
            text = "\n".join(f"> {line}" for line in quoted.text.splitlines()) + f"\n\n{text}"
            outside = "" if quoted.sender == said.sender else f"a message of {quoted.sender}"
        said = replace(said, text=text)
        source = self._rooms.source(room_id, said.sender, thread_id=said.thread_id)
        heard = Heard(room_id, InboundMessage(source, text, said.event_id, outside=outside), edits)
        return (heard, said) if said.files else heard

    async def _with_files(self, said: Said) -> tuple[str, Any]:
        return await take_in(
            self._connection,
            said,
            self._attachments,
            most_bytes=self._settings.file_mb * _MEGABYTE,
            within=self._settings.fetch_seconds,
        )

    async def _answered(self, room_id: str, reacted: Reacted) -> Heard | None:
        """A thumb below a question of ours is an answer to it."""
        if not self._settings.thumbs:
            return None
        key = reacted.key.casefold()
        word = next((w for w, keys in (("yes", _YES), ("no", _NO)) if key.startswith(keys)), None)
        if word is None:
            return None
        quote = await self._quotes.find(room_id, reacted.target)
        if quote is None or quote.sender != self._connection.user_id or quote.question is None:
            return None
        await self._rooms.settle(room_id, reacted.sender)
        source = self._rooms.source(room_id, reacted.sender, thread_id=quote.thread_id)
        text = f"!{word} {quote.question}"
        return Heard(room_id, InboundMessage(source, text, reacted.event_id))

    async def _taken_back(self, room_id: str, redacted: Redacted) -> TakenBack | None:
        quote = await self._quotes.find(room_id, redacted.target)
        if quote is None:
            return None
        if quote.sender == self._connection.user_id:
            self._deleted(redacted.target)
            return None
        source = self._rooms.source(room_id, quote.sender, thread_id=quote.thread_id)
        return TakenBack(source, redacted.target)

    def _me(self, room_id: str) -> Me:
        user_id = self._connection.user_id
        return Me(user_id, self._rooms.name_of(room_id, user_id))
