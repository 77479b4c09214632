"""Replies on their way into a room, each of them exactly once.

Every part has a transaction of its own, made from what names the reply for ever: however often it
is sent again, and by whichever process, the server keeps one event. Part 0 has the transaction of
the turn's preview. What a process that was killed left there is found by it and edited.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from parley.gateway.delivery import NotSent, Rejected, Unreachable
from parley.protocol import Attachment, ParleyError
from parley.storage.contract import Delivery
from parley.surfaces.matrix.connection import Connection, MatrixFault, part
from parley.surfaces.matrix.content import (
    MESSAGE,
    Spot,
    edit_of,
    fitting,
    marked,
    message,
    part_limit,
    reaction,
    spot_of,
    transaction,
)
from parley.surfaces.matrix.previews import Preview, Previews, redact
from parley.surfaces.matrix.room_names import Marks
from parley.surfaces.matrix.uploads import FileGone, file_message, upload
from parley.surfaces.text.markup import rendered, well_formed
from parley.surfaces.text.split import split_text

__all__ = ["Outgoing"]

_QUICK_ANSWERS: Final = ("👍", "👎")
_REMEMBERED: Final = 2_000
_LONGEST_PAUSE: Final = 30.0
_SMALLER: Final = 4
_LONG: Final = 100_000


class Outgoing:
    """Sends deliveries. It asks `previews` for the message that a turn has already."""

    def __init__(
        self,
        connection: Connection,
        previews: Previews,
        *,
        marks: Marks | None = None,
        thumbs: bool = True,
    ) -> None:
        self.thumbs = thumbs
        """Whether a question has answers below it to tap on."""
        self._connection = connection
        self._previews = previews
        self._marks = marks
        self._sent: OrderedDict[str, str] = OrderedDict()
        """The events of transactions that are done, so that a retry goes on where it was."""
        self._heads: OrderedDict[str, Preview] = OrderedDict()

    async def deliver(self, delivery: Delivery, *, room_id: str) -> str:
        """Send a reply and return the id of its first event.

        Raises NotSent, Unreachable or Rejected; sent again, nothing of it is there twice.
        """
        try:
            return await _Sending(self, delivery, room_id).run()
        except MatrixFault as fault:
            raise self._outcome(fault, delivery.attempts) from fault

    # ── what a sending needs ──

    @property
    def connection(self) -> Connection:
        return self._connection

    @property
    def marks(self) -> Marks | None:
        return self._marks

    async def head_of(self, delivery: Delivery, name: str) -> Preview:
        """The message that is there already, if there is one. Only turns have previews."""
        if delivery.turn is None or delivery.dedupe != f"turn:{delivery.turn}":
            return Preview(None, known=True)
        found = await self._previews.take(name) or self._heads.get(name)
        found = found or Preview(None, known=False)
        _keep(self._heads, name, found)
        return found

    async def once(self, name: str, room_id: str, kind: str, content: dict[str, Any]) -> str:
        """Send unless this process has it from the server that it is there."""
        if name in self._sent:
            return self._sent[name]
        small = fitting(content, encrypted=self._connection.is_encrypted(room_id))
        self._previews.pace.spend()
        return self.remember(name, await self._connection.send(room_id, kind, small, name))

    def remember(self, name: str, event_id: str) -> str:
        _keep(self._sent, name, event_id)
        return event_id

    def sent(self, name: str) -> str | None:
        return self._sent.get(name)

    def _outcome(self, fault: MatrixFault, attempts: int) -> ParleyError:
        if fault.status == 429:
            self._previews.pace.limited(fault.after)
            return NotSent(str(fault), after=fault.after or 2.0)
        if fault.is_passing or fault.status == 401:
            longest = min(_LONGEST_PAUSE, 0.5 * 2.0 ** min(attempts, 16))
            pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
            return NotSent(str(fault), after=fault.after or pause)
        if fault.status in {403, 404}:
            return Unreachable(str(fault))
        return Rejected(str(fault))


class _Sending:
    """One attempt at one delivery."""

    def __init__(self, outgoing: Outgoing, delivery: Delivery, room_id: str) -> None:
        self._outgoing = outgoing
        self._connection = outgoing.connection
        self._delivery = delivery
        self._room_id = room_id
        self._spot = spot_of(delivery.source, room_id=room_id, answers=delivery.answers)

    async def run(self) -> str:
        parts = await self._parts()
        ids = []
        if parts:
            ids.append(await self._head(parts[0]))
            for number, text in enumerate(parts[1:], start=1):
                ids.append(await self._say(text, str(number), self._spot.after_the_first()))
        else:
            await self._take_back()
        last = ids[-1] if ids else None  # who answers has seen all of the question
        ids += await self._files(self._spot.after_the_first() if parts else self._spot)
        if self._question is not None and last and self._outgoing.thumbs:
            await self._offer_answers(last)
        return ids[0] if ids else ""

    async def _parts(self) -> Sequence[str]:
        text = well_formed(self._delivery.text)
        if len(text) <= _LONG:
            return split_text(text, limit=part_limit(text))
        return await asyncio.to_thread(lambda: split_text(text, limit=part_limit(text)))

    def _name(self, of_part: str) -> str:
        return transaction(self._delivery.session, self._delivery.dedupe, of_part)

    @property
    def _question(self) -> str | None:
        kind, _, number = self._delivery.dedupe.partition(":")
        return number if kind == "ask" else None

    async def _content(self, text: str, spot: Spot) -> dict[str, Any]:
        notifies = self._delivery.kind == "reply" or self._question is not None
        more = {"org.parley.question": {"id": self._question}} if self._question else {}
        kind = "m.text" if notifies else "m.notice"
        return message(text, await rendered(text), spot, kind=kind, **more)

    # ── the first part, which may be there already ──

    async def _head(self, text: str) -> str:
        name = self._name("0")
        head = await self._outgoing.head_of(self._delivery, name)
        if head.event_id is None and head.known:
            return await self._say(text, "0", self._spot)
        if head.event_id is not None and head.room_id not in {None, self._room_id}:
            # The room was replaced meanwhile: what is in the old one cannot be edited from here.
            with contextlib.suppress(MatrixFault):
                await redact(self._connection, str(head.room_id), head.event_id, name)
            return await self._say(text, "0", self._spot)
        if head.gone:
            return await self._say(text, "0.again", self._spot)
        content = await self._content(text, self._spot)
        if head.event_id is None:
            return await self._found_or_sent(name, content)
        await self._edit(head.event_id, content)
        return head.event_id

    async def _found_or_sent(self, name: str, content: dict[str, Any]) -> str:
        """Send it; where an earlier process has sent something else under this name, edit that."""
        if (known := self._outgoing.sent(name)) is not None:
            return known
        connection, room_id = self._connection, self._room_id
        small = fitting(content, encrypted=connection.is_encrypted(room_id))
        wire = await connection.wrap(room_id, MESSAGE, small)
        event_id = await connection.put(room_id, *wire, name)
        path = f"/v3/rooms/{part(room_id)}/event/{part(event_id)}"
        held = await connection.call("GET", path)
        if (held.get("type"), held.get("content")) == wire or self._opened(held) == small:
            return self._outgoing.remember(name, event_id)
        if not held.get("content"):  # someone has redacted it: an edit would not be seen
            event_id = await self._outgoing.once(self._name("0.again"), room_id, MESSAGE, content)
        else:
            await self._edit(event_id, content)
        return self._outgoing.remember(name, event_id)

    def _opened(self, held: Mapping[str, Any]) -> object:
        """What an encrypted event of ours says, where its key is still here."""
        if held.get("type") != "m.room.encrypted":
            return None
        from nio import EncryptionError, Event, LocalProtocolError, MegolmEvent

        event = Event.parse_encrypted_event(dict(held))
        if not isinstance(event, MegolmEvent):
            return None
        event.room_id = self._room_id
        try:
            opened = self._connection.nio.decrypt_event(event)
        except (EncryptionError, LocalProtocolError):
            return None
        return opened.source.get("content")

    async def _edit(self, event_id: str, content: dict[str, Any]) -> None:
        name = self._name("0.final")
        await self._outgoing.once(name, self._room_id, MESSAGE, edit_of(event_id, content))

    async def _take_back(self) -> None:
        """There is no text: whatever was shown of it is taken away."""
        name = self._name("0")
        head = await self._outgoing.head_of(self._delivery, name)
        if head.event_id is not None:
            await redact(self._connection, self._room_id, head.event_id, name)

    # ── the others ──

    async def _say(self, text: str, of_part: str, spot: Spot) -> str:
        try:
            return await self._send(await self._content(text, spot), of_part)
        except MatrixFault as fault:
            pieces = split_text(text, limit=max(64, len(text.encode()) // _SMALLER))
            if fault.code != "M_TOO_LARGE" or len(pieces) < 2:
                raise
        first, *more = pieces
        event_id = await self._send(await self._content(first, spot), of_part)
        for number, piece in enumerate(more, start=1):
            content = await self._content(piece, spot.after_the_first())
            await self._send(content, f"{of_part}.{number}")
        return event_id

    async def _send(self, content: dict[str, Any], of_part: str) -> str:
        name, room_id = self._name(of_part), self._room_id
        try:
            return await self._outgoing.once(name, room_id, MESSAGE, content)
        except MatrixFault as fault:
            if fault.status != 400 or "m.relates_to" not in content:
                raise
        # What it belongs to is in a room that this one replaced: better said by itself than not.
        alone = {key: value for key, value in content.items() if key != "m.relates_to"}
        return await self._outgoing.once(f"{name}.alone", room_id, MESSAGE, alone)

    async def _offer_answers(self, event_id: str) -> None:
        """To tap on; where they cannot be sent, people still can type."""
        for number, key in enumerate(_QUICK_ANSWERS):
            with contextlib.suppress(MatrixFault):
                name = self._name(f"answer.{number}")
                content = reaction(event_id, key)
                await self._connection.send(self._room_id, "m.reaction", content, name)

    async def _files(self, spot: Spot) -> list[str]:
        attachments = self._delivery.attachments
        names = [self._name(f"file.{number}") for number in range(len(attachments))]
        ids = []
        for number, (name, attachment) in enumerate(zip(names, attachments, strict=True)):
            if (known := self._outgoing.sent(name)) is None:
                content = marked(await self._file_content(name, attachment), spot)
                known = await self._send(content, f"file.{number}")
            ids.append(known)
        if names and self._outgoing.marks is not None:
            await self._outgoing.marks.put_marks({_mark(name): None for name in names})
        return ids

    async def _file_content(self, name: str, attachment: Attachment) -> dict[str, Any]:
        """The file's message, or what to say where it cannot be sent."""
        if attachment.is_remote:
            return {"msgtype": "m.text", "body": f"{attachment.name}: {attachment.path}"}
        try:
            return await file_message(attachment, await self._where(name, attachment))
        except FileGone as gone:
            return {"msgtype": "m.notice", "body": str(gone)}
        except MatrixFault as fault:
            if fault.code != "M_TOO_LARGE":
                raise
            words = f"The file {attachment.name} is larger than this homeserver takes."
            return {"msgtype": "m.notice", "body": words}

    async def _where(self, name: str, attachment: Attachment) -> dict[str, Any]:
        """Where the file was uploaded to, by an earlier attempt or now."""
        marks = self._outgoing.marks
        encrypted = self._connection.is_encrypted(self._room_id)
        if marks is not None and (kept := await marks.mark(_mark(name))) is not None:
            where: dict[str, Any] = json.loads(kept)
            if ("file" in where) == encrypted:
                return where
        where = await upload(self._connection, attachment, encrypted=encrypted)
        if marks is not None:
            await marks.put_marks({_mark(name): json.dumps(where)})
        return where


def _mark(name: str) -> str:
    return f"matrix:upload:{name}"


def _keep(memory: OrderedDict[str, Any], name: str, value: object) -> None:
    memory[name] = value
    memory.move_to_end(name)
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)
